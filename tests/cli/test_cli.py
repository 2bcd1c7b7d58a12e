"""The command line: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from onnxpatch.cli.app import app
from onnxpatch.cli.arrays import Sizes, read
from onnxpatch.errors import InputError


def run(*args: str):
    return CliRunner().invoke(app, list(args), prog_name="onnxpatch")


def test_export_then_verify_in_another_call(place):
    given = ["models.py:Scale", "--input", "x=float32[B,4]"]
    done = run("export", *given, "scale.onnx")
    assert done.exit_code == 0, done.output
    assert "right" in done.output.splitlines()[0]
    again = run("verify", "scale.onnx", *given, "--json")
    assert again.exit_code == 0, again.output
    told = json.loads(again.stdout)
    assert told["ok"] and told["dimensions"] == {"B": 2}
    assert {check["sizes"]["B"] for check in told["checks"]} > {2}


def test_a_wrong_export_ends_with_1_and_leaves_no_file(place):
    given = ["models.py:Frozen", "--input", "x=float32[2,S=3]", "frozen.onnx", "--exporter", "trace"]
    done = run("export", *given, "--attempts", "asked")
    assert done.exit_code == 1, done.output
    assert "WRONG" in done.output
    assert not (place / "frozen.onnx").exists()
    done = run("export", *given)
    assert done.exit_code == 0, done.output
    assert "attempt 2, branches=True: right, delivered" in done.output and (place / "frozen.onnx").exists()


def test_a_wrong_file_is_found_by_verify(place):
    torch.manual_seed(1)  # the factory has seed 0
    model = torch.nn.Linear(4, 4)
    torch.onnx.export(model, (torch.ones(2, 4),), str(place / "other.onnx"), dynamo=False)
    done = run("verify", "other.onnx", "models.py:Scale", "--input", "x=float32[2,4]")
    assert done.exit_code == 1, done.output


@pytest.mark.parametrize("name", ["Ready", "Dummy", "with_args"])
def test_models_that_bring_their_example_need_no_input(place, name):
    done = run("export", f"models.py:{name}", "brought.onnx", "--json")
    assert done.exit_code == 0, done.output
    if name == "Ready":
        assert json.loads(done.stdout)["dimensions"] == {"batch": 2}


def test_inputs_from_files(place):
    np.savez(place / "in.npz", x=np.ones((2, 4), "float32"), other=np.zeros(4, "float32"))
    by_key = run("export", "models.py:Scale", "-i", "x=in.npz", "-i", "bias=in.npz:other", "--dynamic", "x=[B,_]",
                 "--json", "m.onnx")  # fmt: skip
    assert by_key.exit_code == 0, by_key.output
    assert json.loads(by_key.stdout)["dimensions"] == {"B": 2}


def test_inputs_from_safetensors(place):
    from safetensors.torch import save_file

    save_file({"x": torch.ones(3, 4)}, place / "in.safetensors")
    done = run("export", "models.py:Scale", "-i", "in.safetensors", "--json", "m.onnx")
    assert done.exit_code == 0, done.output


def test_a_call_may_be_written_out(place):
    assert run("plan", "models.py:sized(3, bias=True)").exit_code == 0
    assert "only literals" in run("plan", "models.py:sized(open)").stderr


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
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
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
    assert "Read-only file system" in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_arrays_of_the_other_byte_order(place):
    np.save(place / "other.npy", np.arange(8).reshape(2, 4).astype(">f4"))
    (found,) = read("x=other.npy", Sizes())
    assert found.value.tolist() == [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]


def test_debug_shows_the_traceback(place):
    done = run("plan", "models.py:boom", "--debug")
    assert isinstance(done.exception, InputError)
    assert isinstance(done.exception.__cause__, RuntimeError)


def test_what_the_exporters_print_does_not_reach_stdout(place, capfd):
    """The TorchScript exporter writes the graph that it stumbled over, past Python."""
    (place / "odd.py").write_text(
        "import torch\nclass Odd(torch.nn.Module):\n    def forward(self, x): return torch.special.bessel_j0(x)\n"
    )
    done = run("export", "odd.py:Odd", "-i", "x=float32[2,4]", "--exporter", "trace")
    assert done.exit_code == 1 and "bessel" in done.stderr
    assert capfd.readouterr().out == ""


def test_a_refused_export_has_a_report_and_a_page(place):
    from onnxpatch.results.schema import report_schema
    from tests.results.test_schema import misfits

    (place / "odd.py").write_text(
        "import torch\nclass Odd(torch.nn.Module):\n    def forward(self, x): return torch.special.bessel_j0(x)\n"
    )
    given = ["odd.py:Odd", "-i", "x=float32[2,4]", "--exporter", "trace"]
    done = run("export", *given, "--json", "--html", "odd.html")
    assert done.exit_code == 1 and len(done.stderr.strip().splitlines()) == 1
    told = json.loads(done.stdout)
    assert misfits(told, report_schema()) == []
    assert told["verdict"] == "refused" and not told["ok"]
    assert "bessel" in told["checks"][0]["error"]
    page = (place / "odd.html").read_text()
    assert 'id="verdict">refused' in page and "special_bessel_j0" in page
    assert run("export", *given, "--markdown").stdout.startswith("### model.onnx: REFUSED (Odd; trace, opset 18)")
    assert run("export", *given).stdout == ""


def test_a_file_whose_inputs_do_not_fit(place):
    run("export", "models.py:Scale", "-i", "x=float32[2,4]", "-i", "bias=float32[4]", "two.onnx")
    done = run("verify", "two.onnx", "models.py:Scale", "-i", "x=float32[2,4]")
    assert done.exit_code == 2, done.output
    assert "takes 2 inputs" in done.stderr


def test_a_corrupt_file(place):
    (place / "cut.onnx").write_bytes(b"\x08\x07\x12\x04torch" * 9)
    done = run("verify", "cut.onnx", "models.py:Scale", "-i", "x=float32[2,4]")
    assert done.exit_code == 2, done.output


def test_doctor_names_the_part_at_fault(place):
    done = run("doctor", "models.py:Nested", "--input", "x=float32[2,S=3]", "--exporter", "trace", "--json")
    assert done.exit_code == 1, done.output
    told = json.loads(done.stdout)
    assert not told["ok"] and told["status"] == "silent"
    assert told["culprits"][0]["path"] == "inner"


def test_doctor_has_nothing_to_say_of_a_right_model(place):
    done = run("doctor", "models.py:Scale", "--input", "x=float32[B,4]", "--exporter", "trace")
    assert done.exit_code == 0, done.output


def test_doctor_writes_a_page_beside_what_it_says(place):
    given = ["models.py:Nested", "--input", "x=float32[2,S=3]", "--exporter", "trace"]
    done = run("doctor", *given, "--json", "--html", "found.html")
    assert done.exit_code == 1, done.output
    assert json.loads(done.stdout)["status"] == "silent"
    page = (place / "found.html").read_text()
    assert "<h3><code>inner</code>" in page and "The part at fault" in page


def test_plan_writes_a_page_beside_what_it_says(place):
    done = run("plan", "models.py:Scale", "--json", "--html", "plan.html")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["model"] == "Scale"
    assert "0 modules swapped" in (place / "plan.html").read_text()
    assert "No module is swapped." in run("plan", "models.py:Scale", "--html", "plan.html").stdout


def test_list_describes_every_patch():
    import onnxpatch

    told = json.loads(run("list", "--json").stdout)
    assert {row["name"] for row in told["patches"]} == {patch.name for patch in onnxpatch.REGISTRY}
    assert all(row["why"] and row["targets"] for row in told["patches"])


def test_list_proves(registry):
    import onnxpatch

    first = next(iter(onnxpatch.REGISTRY)).name
    done = run("list", first, "--prove", "--json")
    assert json.loads(done.stdout)["patches"][0]["proof"]["status"] == "proven", done.output
    assert done.exit_code == 0


def test_plan_as_json(place):
    told = json.loads(run("plan", "models.py:Scale", "--json").stdout)
    assert told["model"] == "Scale"
    assert told["swaps"] == []


def test_ops_knows_what_is_missing():
    told = json.loads(run("ops", "_upsample_bicubic2d_aa", "--json").stdout)
    assert told["operators"][0]["dynamo"] == "translated"
    assert told["operators"][0]["trace_opset"] is None
    only = json.loads(run("ops", "*bicubic2d*", "--missing", "--exporter", "trace", "--json").stdout)
    assert "aten::_upsample_bicubic2d_aa" in {one["name"] for one in only["operators"]}
    assert "aten::upsample_bicubic2d" not in {one["name"] for one in only["operators"]}


def test_sizes_of_named_dimensions():
    sizes = Sizes()
    (image,) = read("x=float32[B,3,H,W=96]", sizes)
    assert (tuple(image.value.shape), image.free) == ((2, 3, 224, 96), {0: "B", 2: "H", 3: "W"})
    (mask,) = read("attention_mask=int64[B,S]", sizes)
    assert mask.value.tolist() == [[1] * 16] * 2
    (tokens,) = read("ids=int64[B,S]<100", sizes)
    assert 1 < tokens.value.max() < 100
    with pytest.raises(InputError, match="B is 3 here and 2 elsewhere"):
        read("y=float32[B=3]", sizes)


def test_inputs_of_one_shape_hold_other_numbers():
    """Or a graph that takes them in another order, or subtracts them, would look right."""
    sizes = Sizes()
    a, b = (read(f"{name}=float32[2,4]", sizes)[0].value for name in "ab")
    assert not torch.equal(a, b)
    again = read("a=float32[2,4]", Sizes())[0].value
    assert torch.equal(a, again)  # the same in the next command


def test_files_with_names_of_their_own(place):
    (place / "two.py").write_text(
        "import torch\nclass Minus(torch.nn.Module):\n    def forward(self, a, b): return a - 2 * b\n"
    )
    given = ["two.py:Minus", "-i", "a=float32[2,4]", "-i", "b=float32[2,4]"]
    assert run("export", *given, "--input-names", "p,q", "m.onnx").exit_code == 0
    assert run("verify", "m.onnx", *given, "--input-names", "p,q").exit_code == 0
    turned = run("verify", "m.onnx", *given, "--input-names", "q,p", "--json")
    assert turned.exit_code == 1
    assert [check["status"] for check in json.loads(turned.stdout)["checks"]] == ["wrong", "wrong"]
    unknown = run("verify", "m.onnx", *given, "--input-names", "p,r")
    assert unknown.exit_code == 2 and "the file's inputs ['p', 'q']" in unknown.stderr


def test_inputs_that_fill_containers(place):
    from onnxpatch.cli.example import example
    from onnxpatch.cli.target import Target

    class Sum(torch.nn.Module):
        def forward(self, xs, *, scale):
            return sum(xs) * scale["a"]

    call = example(Target("Sum", Sum(), None), ["xs.0=float32[B,2]", "xs.1=float32[B,2]", "scale.a=float32[1]"], [])
    assert [tuple(x.shape) for x in call.args[0]] == [(2, 2), (2, 2)]
    assert set(call.kwargs["scale"]) == {"a"}
    assert call.dynamic_shapes == {"xs": [{0: "B"}, {0: "B"}], "scale": {"a": None}}


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


# ------------------------------------------------------------------ bad input, once more: files and runtimes
def test_a_file_of_another_shape_than_the_example(place):
    run("export", "models.py:Scale", "-i", "x=float32[2,4]", "scale.onnx", "--exporter", "trace")
    done = run("verify", "scale.onnx", "models.py:sized(5)", "-i", "input=float32[2,5]")
    assert done.exit_code == 2, done.output
    assert "input 'x' is float32[2,4], the example gives input as float32[2,5]" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("command", ["export", "verify"])
def test_without_onnxruntime(place, monkeypatch, command):
    from onnxpatch.onnxfile.runtimes.onnxruntime import OnnxRuntime

    run("export", "models.py:Scale", "-i", "x=float32[2,4]", "scale.onnx", "--exporter", "trace")
    monkeypatch.setattr(OnnxRuntime, "available", lambda self: False)
    given = ["models.py:Scale", "-i", "x=float32[2,4]"]
    asked = ["verify", "scale.onnx", *given] if command == "verify" else ["export", *given, "m.onnx"]
    done = run(*asked, "--runtime", "onnxruntime")
    assert done.exit_code == 2, done.output
    assert "pip install 'onnxpatch[verify]'" in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert not (place / "m.onnx").exists()
    served = run("verify", "scale.onnx", *given, "--max-probes", "2", "--json")  # onnx.reference stands in
    assert served.exit_code == 0 and json.loads(served.stdout)["runtime"] == "reference"


def test_a_graph_that_no_runtime_loads_is_wrong(place, monkeypatch):
    from onnxpatch.onnxfile.runtimes.onnxruntime import OnnxRuntime

    def refuse(self, model, providers):
        raise RuntimeError("no kernel")

    monkeypatch.setattr(OnnxRuntime, "load", refuse)
    done = run("export", "models.py:Scale", "-i", "x=float32[2,4]", "m.onnx", "--exporter", "trace")
    assert done.exit_code == 1, done.output
    assert "WRONG" in done.output and "no kernel" in done.output
    assert not (place / "m.onnx").exists()


def test_the_help_gives_the_exit_codes():
    assert "0 right, 1 wrong or refused, 2 bad input, 3 an internal error" in " ".join(
        run("--help").output.replace("│", " ").split()
    )


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
