"""Bad input to the command line: one line that says what to do, and exit code 2; a file that is wrong: 1."""

from __future__ import annotations

import json

import pytest

from onnxpatch.errors import InputError
from tests.cli.running import one_error, run

pytestmark = pytest.mark.exports

BAD = [
    (["plan", "models.py"], "does not name a model"),
    (["plan", "nowhere.py:f"], "no such file"),
    (["plan", "no_such_package.here:f"], "no module named"),
    (["plan", "models.py:absent"], "has no 'absent'"),
    (["plan", "models.py:boom"], "raised RuntimeError: no weights at"),
    (["plan", "models.py:nothing"], "returned a int"),
    (["plan", "models.py:Scale", "--exporter", "tensorrt"], "dynamo"),
    (["plan", "models.py:Scale", "--only", "no-such-patch"], "neither a patch nor a module path"),
    (["plan", "models.py:Scale", "--image-size", "big"], "write a size in pixels"),
    (["export", "models.py:Scale"], "has no example input"),
    (["export", "models.py:Scale", "-i", "y=float32[2,4]"], "forward has no argument 'y'; it takes x, bias"),
    (["export", "models.py:Scale", "-i", "x=float99[2,4]"], "write a torch dtype"),
    (["export", "models.py:Scale", "-i", "x=float32[B,0]"], "sizes start at 1"),
    (["export", "models.py:Scale", "-i", "x=float32[99999,99999]"], "GiB"),
    (["export", "models.py:Scale", "-i", "x=float32[B,5]"], "the model itself refuses the example"),
    (["export", "models.py:Scale", "-i", "x=absent.npz"], "no such file"),
    (["export", "models.py:Scale", "-i", "x=float32[2,4]", "--dynamic", "z=[B,_]"], "the call has no argument 'z'"),
    (["export", "models.py:Scale", "-i", "x=float32[2,4]", "--dynamic", "x=[B]"], "give one entry for each axis"),
    (["export", "models.py:Scale", "-i", "x=float32[2,4]", "no/such/folder/m.onnx"], "does not exist"),
    (["verify", "absent.onnx", "models.py:Scale", "-i", "x=float32[2,4]"], "no such file"),
    (["verify", "models.py", "models.py:Scale", "-i", "x=float32[2,4]"], "not a readable ONNX model"),
    (["ops", "no_such_operator"], "torch has no operator like"),
    (["list", "no-such-patch"], "no patch has the name or the target"),
    (["plan", ".:f"], "neither a module nor a .py file"),
    (["plan", "models.py:Scale", "--image-size", "224x0"], "write a size in pixels"),
    (["plan", "models.py:Scale", "--opset", "-3"], "onnxpatch plan --help"),
    (["plan", "models.py:Scale", "--opset", "99"], "opset 99: the installed onnx"),
    (["plan"], "Missing argument 'TARGET'"),
    (["plan", "models.py:Scale", "--no-such-option"], "--no-such-option"),
    (["no-such-command"], "onnxpatch --help"),
    (["export", "models.py:Scale", "-i", "x=float32[2,4]", "--opset", "many"], "--opset"),
    (["export", "models.py:Scale", "-i", "x=float32[2,4]", "--opset", "99"], "opset 99: the installed onnx"),
    (["export", "models.py:Scale", "-i", "x=float32[2,4]", "--opset", "7"], "cannot write Scale in opset 7"),
    (["export", "models.py:Scale", "-i", "x=float32[2,4]", "--runtime", "foo"], "openvino, reference"),
    (["export", "models.py:Scale", "-i", "x=float32[2,4]", "--tolerance", "-1"], "0 or more"),
    (["export", "models.py:Scale", "-i", "x=float32[2,4]", "--tolerance", "nan"], "0 or more"),
    (["export", "models.py:Scale", "-i", "x=float32[2,4]", "--html", "no/such/folder/m.html"], "does not exist"),
    (["export", "models.py:Scale", "-i", "x=float32[,4]"], "dimension ''"),
    (["export", "models.py:Scale", "-i", "x=qint8[2,4]"], "torch has no random numbers of dtype qint8"),
    (["export", "models.py:Scale", "-i", "x=int64[2,4]<0"], "no numbers to draw from below 0"),
    (["export", "models.py:Scale", "-i", f"x=float32[{10**22},4]"], "GiB"),
    (["export", "models.py:Scale", "-i", "x=float8_e4m3fn[2,4]"], "the model itself refuses the example"),
    (["export", "models.py:Scale", "-i", "x=junk.npz"], "has no numpy arrays"),
    (["verify", ".", "models.py:Scale", "-i", "x=float32[2,4]"], "is a folder"),
    (["doctor", "absent.py:f", "--html", "no/such/folder/d.html"], "folder does not exist"),
    (["plan", "absent.py:f", "--html", "."], "is a folder"),
    (["doctor", "models.py:Scale", "-i", "x=float32[2,4]", "--opset", "99"], "opset 99: the installed onnx"),
]


@pytest.mark.parametrize(("given", "told"), BAD, ids=[" ".join(given) for given, _ in BAD])
def test_bad_input_is_one_line_and_exit_code_2(place, given, told):
    done = run(*given)
    assert done.exit_code == 2, done.output
    assert told in one_error(done)
    assert done.stdout == ""
    assert not list(place.glob("*.onnx"))


def test_a_place_that_only_seems_writable(place, monkeypatch):
    """access() knows nothing of read-only and of virtual file systems: making the file is what tells."""
    from onnxpatch.exporters import artifact

    def refuse(**_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(artifact.tempfile, "mkdtemp", refuse)
    done = run("export", "models.py:Scale", "-i", "x=float32[2,4]", "m.onnx")
    assert done.exit_code == 2, done.output
    assert "Read-only file system" in one_error(done)


def test_debug_shows_the_traceback(place):
    done = run("plan", "models.py:boom", "--debug")
    assert isinstance(done.exception, InputError)
    assert isinstance(done.exception.__cause__, RuntimeError)


def test_a_file_whose_inputs_do_not_fit(place):
    run("export", "models.py:Scale", "-i", "x=float32[2,4]", "-i", "bias=float32[4]", "two.onnx")
    done = run("verify", "two.onnx", "models.py:Scale", "-i", "x=float32[2,4]")
    assert done.exit_code == 2, done.output
    assert "takes 2 inputs" in one_error(done)


def test_a_corrupt_file(place):
    (place / "cut.onnx").write_bytes(b"\x08\x07\x12\x04torch" * 9)
    done = run("verify", "cut.onnx", "models.py:Scale", "-i", "x=float32[2,4]")
    assert done.exit_code == 2, done.output


# ------------------------------------------------------------------ bad input, once more: files and runtimes
def test_a_file_of_another_shape_than_the_example(place):
    run("export", "models.py:Scale", "-i", "x=float32[2,4]", "scale.onnx", "--exporter", "trace")
    done = run("verify", "scale.onnx", "models.py:sized(5)", "-i", "input=float32[2,5]")
    assert done.exit_code == 2, done.output
    assert "input 'x' is float32[2,4], the example gives input as float32[2,5]" in one_error(done)


@pytest.mark.parametrize("command", ["export", "verify"])
def test_without_onnxruntime(place, monkeypatch, command):
    from onnxpatch.onnxfile.runtimes.onnxruntime import RUNTIME

    run("export", "models.py:Scale", "-i", "x=float32[2,4]", "scale.onnx", "--exporter", "trace")
    monkeypatch.setattr(RUNTIME, "available", lambda: False)
    given = ["models.py:Scale", "-i", "x=float32[2,4]"]
    asked = ["verify", "scale.onnx", *given] if command == "verify" else ["export", *given, "m.onnx"]
    done = run(*asked, "--runtime", "onnxruntime")
    assert done.exit_code == 2, done.output
    assert "pip install 'onnxpatch[verify]'" in one_error(done)
    assert not (place / "m.onnx").exists()
    served = run("verify", "scale.onnx", *given, "--max-probes", "2", "--json")  # onnx.reference stands in
    assert served.exit_code == 0 and json.loads(served.stdout)["runtime"] == "reference"


def test_a_graph_that_no_runtime_loads_is_wrong(place, monkeypatch):
    from onnxpatch.onnxfile.runtimes.onnxruntime import RUNTIME

    def refuse(model, providers):
        raise RuntimeError("no kernel")

    monkeypatch.setattr(RUNTIME, "load", refuse)
    done = run("export", "models.py:Scale", "-i", "x=float32[2,4]", "m.onnx", "--exporter", "trace")
    assert done.exit_code == 1, done.output
    assert "WRONG" in done.output and "no kernel" in done.output
    assert not (place / "m.onnx").exists()


def test_the_help_gives_the_exit_codes():
    assert "0 right, 1 wrong or refused, 2 bad input, 3 an internal error" in " ".join(
        run("--help").output.replace("│", " ").split()
    )
