"""What the command line writes where: the shell's completion, progress, pipes, colours, and the missing extra."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from onnxpatch.cli.app import app
from tests.cli.running import run


@pytest.mark.exports
def test_what_the_exporters_print_does_not_reach_stdout(place, capfd):
    """The TorchScript exporter writes the graph that it stumbled over, past Python."""
    (place / "odd.py").write_text(
        "import torch\nclass Odd(torch.nn.Module):\n    def forward(self, x): return torch.special.bessel_j0(x)\n"
    )
    done = run("export", "odd.py:Odd", "-i", "x=float32[2,4]", "--exporter", "trace")
    assert done.exit_code == 1 and "bessel" in done.stderr
    assert capfd.readouterr().out == ""


def test_without_the_extra_the_command_says_how_to_get_it(monkeypatch, capsys):
    import sys

    from onnxpatch import cli

    monkeypatch.setitem(sys.modules, "typer", None)
    for name in [name for name in sys.modules if name.startswith("onnxpatch.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "pip install 'onnxpatch[cli]'" in capsys.readouterr().err


# ------------------------------------------------------------------ the shell, and CI
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands(shell, monkeypatch):
    pytest.importorskip("shellingham", reason="typer asks it which shell is running")
    typed = {"COMP_WORDS": "onnxpatch ver", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "onnxpatch ver",
             "_TYPER_COMPLETE_FISH_ACTION": "get-args"}  # fmt: skip
    done = CliRunner().invoke(app, [], prog_name="onnxpatch", env={"_ONNXPATCH_COMPLETE": f"complete_{shell}", **typed})
    assert "verify" in done.output and "doctor" not in done.output


@pytest.mark.parametrize(("terminal", "ci", "drawn"), [(True, "", True), (True, "1", False), (False, "", False)])
def test_progress_is_drawn_for_people_only(monkeypatch, capsys, terminal, ci, drawn):
    import sys

    from onnxpatch.cli import show

    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with show.progress("verify") as told:
        told("onnxruntime", 3, 8)
    out, err = capsys.readouterr()
    assert out == "" and (("verify: onnxruntime" in err and "3/8" in err) is drawn)
    assert drawn or err == ""


def test_a_pipe_that_takes_ascii_alone(place):
    import os
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "onnxpatch", "list", "einops*"], capture_output=True, timeout=120,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": os.pathsep.join(p or "." for p in sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"einops-rearrange" in done.stdout


def test_names_in_a_drawn_table_stay_whole(monkeypatch, capsys):
    import sys

    from onnxpatch.cli import show

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    rows = [("einops-rearrange-function", "a.very.long.path.to.something.else", "why " * 12, "more " * 9)]
    show.table("patches", ("patch", "target", "why", "when"), rows)
    assert "einops-rearrange-function" in capsys.readouterr().out
