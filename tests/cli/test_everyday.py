"""The command line in daily use: quick help, names for the file, data, sizes and patches of one's own."""

from __future__ import annotations

import json
import os
import resource
import shlex
import subprocess
import sys

import numpy as np
import pytest
import typer

import onnxpatch
from onnxpatch.cli.app import app
from onnxpatch.cli.options import patch_names
from tests.cli.running import one_error, run

pytestmark = pytest.mark.exports

COMMANDS = ("list", "plan", "export", "verify", "doctor", "prove", "ops", "drift")


def seconds(*command: str) -> float:
    """The least processor time of three starts of the interpreter: what else the machine does plays no part."""
    taken = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(taken)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_does_not_import_torch(command):
    asked = f"sys.argv = ['onnxpatch', *{[command] if command else []}, '--help']"
    code = f"import sys; {asked}\nfrom onnxpatch.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    code += "assert not {'torch', 'onnxruntime', 'pydantic'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "<bool>" not in done.stdout and "--help" in done.stdout


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_one_screen_in_groups_with_two_examples_that_parse(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(*([command] if command else []), "--help").output.splitlines()
    assert len(lines) <= 60
    examples = [shlex.split(line) for line in lines[lines.index("Examples:") + 1 :]]
    assert all(len(line) <= 80 for line in lines) and len(examples) == 2
    for name, *rest in examples:
        assert name == "onnxpatch" and (not command or rest[0] == command)
        # click reads the arguments without running the command.
        group = typer.main.get_command(app)
        with group.make_context("onnxpatch", [rest[0]], resilient_parsing=True) as context:
            group.get_command(context, rest[0]).make_context(rest[0], rest[1:], parent=context)


def test_every_option_says_what_it_does():
    group = typer.main.get_command(app)
    for name in COMMANDS:
        with group.make_context("onnxpatch", [name], resilient_parsing=True) as context:
            command = group.get_command(context, name)
            assert [one.name for one in command.get_params(context) if not one.help] == []


@pytest.mark.slow  # a time
@pytest.mark.parametrize("command", [(), ("export",)])
def test_help_answers_within_three_tenths_of_a_second(command):
    assert seconds("-m", "onnxpatch", *command, "--help") - seconds("-c", "pass") < 0.3


def test_the_shell_completes_names_of_patches():
    assert patch_names("") == sorted(patch.name for patch in onnxpatch.REGISTRY)
    assert patch_names("einops-r") == [name for name in patch_names("") if name.startswith("einops-r")] != []


@pytest.mark.parametrize("command", ["export", "verify", "doctor"])
def test_two_forms_of_output_are_refused(place, command):
    file = ["m.onnx"] if command == "verify" else []
    done = run(command, *file, "models.py:Scale", "--json", "--markdown")
    assert done.exit_code == 2 and "give one of them" in done.stderr


@pytest.mark.exports
def test_export_in_daily_use(place):
    """-o, names of outputs, inputs and sizes to compare at; nothing is printed with -q."""
    np.savez(place / "more.npz", x=np.ones((5, 4), dtype=np.float32))
    given = ["models.py:Scale", "-i", "x=float32[B,4]", "--exporter", "trace", "--output-names", "y"]
    done = run("export", *given, "-o", "scale.onnx", "--data", "more.npz", "--sizes", "B=9,11", "--json")
    assert done.exit_code == 0, done.output
    checks = json.loads(done.stdout)["checks"]
    assert {9, 11} <= {check["sizes"]["B"] for check in checks} and "data[0]" in {check["label"] for check in checks}
    assert checks[0]["outputs"][0]["name"] == "y"
    again = run("export", *given, "-o", "scale.onnx", "-q")
    assert (again.exit_code, again.output) == (0, "")
    checked = run("verify", "scale.onnx", *given[:3], "--sizes", "B=9", "--providers", "CPUExecutionProvider", "-q")
    assert (checked.exit_code, checked.output) == (0, "")


@pytest.mark.exports
@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--sizes", "B"], "write a dimension and its sizes, such as H=32,64,518"),
        (["--sizes", "C=3"], "there is no dynamic dimension 'C'; there are B"),
        (["--providers", "Abacus"], "the installed onnxruntime has no Abacus, it has"),
        (["-o", "other.onnx"], "give one of them"),
        (["--patches", "absent_patches"], "no module named 'absent_patches'"),
        (["--only", "einops-rearange"], "did you mean 'einops-rearrange'"),
    ],
)
def test_what_cannot_be_used_is_one_line(place, more, told):
    done = run("export", "models.py:Scale", "m.onnx", "-i", "x=float32[B,4]", "--exporter", "trace", *more)
    assert done.exit_code == 2, done.output
    assert told in one_error(done)


def test_a_size_that_the_model_refuses(place):
    done = run("export", "models.py:sized(4)", "-i", "input=float32[2,C=4]", "--exporter", "trace", "--sizes", "C=5")
    assert done.exit_code == 2
    assert "C=5 cannot be compared: the model itself refuses it" in one_error(done)


@pytest.mark.exports
def test_quiet_says_what_is_wrong_in_one_line(place):
    given = ["models.py:Frozen", "-i", "x=float32[2,S=3]", "--exporter", "trace", "--only", "einops-rearrange"]
    done = run("export", *given, "-q", "--attempts", "asked")
    assert done.exit_code == 1
    assert len(done.output.strip().splitlines()) == 1 and "WRONG" in done.output


def test_patches_of_ones_own(place):
    (place / "mine.py").write_text(
        "import onnxpatch\n"
        "@onnxpatch.patch('models.Scale', why='it needs another scale', name='my-own-scale')\n"
        "class Scaled:\n"
        "    def forward(self, x, bias=None):\n"
        "        return self.linear(x)\n"
    )
    try:
        done = run("plan", "models.py:Scale", "--patches", "mine.py", "--json")
        assert [swap["patch"] for swap in json.loads(done.stdout)["swaps"]] == ["my-own-scale"]
        assert "my-own-scale" in run("list", "my-own*", "--patches", "mine.py").stdout
    finally:
        onnxpatch.REGISTRY.remove("my-own-scale")


def test_a_pattern_that_fits_no_patch():
    done = run("list", "reduce-bool*")
    assert done.exit_code == 2
    assert "did you mean" in done.stderr and len(done.stderr) < 300


def test_verbose_logs_what_is_done(place):
    asked = ["export", "models.py:Scale", "m.onnx", "-i", "x=float32[B,4]", "--exporter", "trace", "-v"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)}
    done = subprocess.run([sys.executable, "-m", "onnxpatch", *asked], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "onnxpatch: exporting Scale (trace, opset 18)" in done.stderr
