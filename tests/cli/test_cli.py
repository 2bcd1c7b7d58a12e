"""The command line: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import json

import pytest
import torch

from tests.cli.running import run

pytestmark = pytest.mark.exports


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
    assert "attempt 2 of 2 worked; next time: onnxpatch export ..." in done.output and (place / "frozen.onnx").exists()


def test_a_wrong_file_is_found_by_verify(place):
    torch.manual_seed(1)  # the factory has seed 0
    model = torch.nn.Linear(4, 4)
    torch.onnx.export(model, (torch.ones(2, 4),), str(place / "other.onnx"), dynamo=False)
    done = run("verify", "other.onnx", "models.py:Scale", "--input", "x=float32[2,4]")
    assert done.exit_code == 1, done.output


def test_a_refused_export_has_a_report_and_a_page(place):
    from onnxpatch.results.schema import report_schema
    from tests.results.test_schema import misfits

    (place / "odd.py").write_text(
        "import torch\nclass Odd(torch.nn.Module):\n"
        "    def forward(self, x): return torch.linalg.ldl_factor(x @ x.T)[0]\n"
    )
    given = ["odd.py:Odd", "-i", "x=float32[2,4]", "--exporter", "trace"]
    done = run("export", *given, "--json", "--html", "odd.html")
    said = [line for line in done.stderr.strip().splitlines()[1:] if not line.startswith("    ")]
    assert done.exit_code == 1 and [line[:5] for line in said] == ["next:"]
    told = json.loads(done.stdout)
    assert misfits(told, report_schema()) == []
    assert told["verdict"] == "refused" and not told["ok"]
    assert "linalg_ldl_factor" in told["checks"][0]["error"]
    page = (place / "odd.html").read_text()
    assert 'id="verdict">refused' in page and "linalg_ldl_factor" in page
    assert run("export", *given, "--markdown").stdout.startswith(
        "### model.onnx: REFUSED, trace cannot export Odd (opset 18)"
    )
    assert run("export", *given).stdout == ""


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
    done = run("list", "squeeze-of-several-axes", "--prove", "--json")
    assert json.loads(done.stdout)["patches"][0]["proof"]["status"] == "proven", done.output
    assert done.exit_code == 0


def test_plan_as_json(place):
    told = json.loads(run("plan", "models.py:Scale", "--json").stdout)
    assert told["model"] == "Scale"
    assert told["swaps"] == []


@pytest.mark.quick  # the only test of the command
def test_ops_knows_what_is_missing():
    told = json.loads(run("ops", "_upsample_bicubic2d_aa", "--json").stdout)
    assert told["operators"][0]["dynamo"] == "translated"
    assert told["operators"][0]["trace_opset"] is None
    only = json.loads(run("ops", "*bicubic2d*", "--missing", "--exporter", "trace", "--json").stdout)
    assert "aten::_upsample_bicubic2d_aa" in {one["name"] for one in only["operators"]}
    assert "aten::upsample_bicubic2d" not in {one["name"] for one in only["operators"]}
