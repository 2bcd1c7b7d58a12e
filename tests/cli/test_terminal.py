"""What the command line writes where: the shell's completion, progress, pipes, colours, and the missing extra."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onnxpatch.cli.app import app
from onnxpatch.messages.text import progress_writer, tell
from tests.cli.running import run

ROOT = Path(__file__).parents[2]


@pytest.mark.exports
def test_what_the_exporters_print_does_not_reach_stdout(place, capfd):
    """The TorchScript exporter writes the graph that it stumbled over, past Python."""
    (place / "odd.py").write_text(
        "import torch\nclass Odd(torch.nn.Module):\n"
        "    def forward(self, x): return torch.linalg.ldl_factor(x @ x.T)[0]\n"
    )
    done = run("export", "odd.py:Odd", "-i", "x=float32[2,4]", "--exporter", "trace")
    assert done.exit_code == 1 and "linalg_ldl_factor" in done.stderr
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
    show.print_table("patches", ("patch", "target", "why", "when"), rows)
    assert "einops-rearrange-function" in capsys.readouterr().out


# ------------------------------------------------------------------ nobody to read it
_MODEL = (
    "import torch\nclass Twice(torch.nn.Module):\n    def forward(self, x): return x * 2\n"
    "def made(): return Twice(), (torch.ones(2, 3),)\n"
)
_ENDS = {  # of a shell's command: the exit code, and what stands on the stream that is left
    ">&-": ("", ""),
    "2>&-": ("out.onnx: right", ""),
    ">&- 2>&- <&-": ("", ""),
    ">/dev/full": ("", "stdout cannot be written (No space left on device)"),
    "2>/dev/full": ("out.onnx: right", ""),
    "--json >/dev/full": ("", "stdout cannot be written"),
}


@pytest.mark.exports
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("end", _ENDS)
def test_the_exit_code_is_the_verdicts_where_nobody_can_read_it(place, end):
    (place / "twice.py").write_text(_MODEL)
    command = f"{sys.executable} -m onnxpatch export twice.py:made out.onnx --exporter trace {end}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", command], cwd=place, env=environment, capture_output=True, text=True)
    out, error = _ENDS[end]
    assert (done.returncode, out in done.stdout, error in done.stderr) == (0, True, True), done
    assert "internal" not in done.stdout + done.stderr
    assert (place / "out.onnx").read_bytes()[:1] == b"\x08"


@pytest.mark.parametrize("stream", [None, "full"])
def test_what_is_told_on_stderr_is_never_an_error_nor_on_stdout(monkeypatch, capsys, stream):
    opened = open("/dev/full", "w") if stream and Path("/dev/full").exists() else None  # noqa: SIM115
    monkeypatch.setattr(sys, "stderr", opened)
    progress_writer(True)("export", 1, 2)
    tell("a line")
    assert capsys.readouterr().out == ""


def test_no_folder_for_temporary_files_is_one_line(place, monkeypatch):
    def none():
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    (place / "twice.py").write_text(_MODEL)
    monkeypatch.setattr(tempfile, "gettempdir", none)
    for command in ("export", "doctor"):
        done = run(command, "twice.py:made")
        assert done.exit_code == 2 and "No usable temporary directory" in done.stderr and "TMPDIR" in done.stderr
