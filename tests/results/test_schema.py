"""The JSON Schemas say what the commands write."""

from __future__ import annotations

import json
import textwrap

import pytest
import torch

import onnxpatch
from onnxpatch.results.schema import report_schema

pytestmark = pytest.mark.exports

KINDS = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
    "array": list,
    "object": dict,
}


def misfits(value, schema, where="report", definitions=None):
    """Where a value is not as the schema says: the part of JSON Schema that the schemas use."""
    definitions = schema.get("$defs", {}) if definitions is None else definitions
    if "$ref" in schema:
        return misfits(value, definitions[schema["$ref"].rpartition("/")[2]], where, definitions)
    if "anyOf" in schema:
        alternatives = [misfits(value, one, where, definitions) for one in schema["anyOf"]]
        return min(alternatives, key=len)
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where}: {value!r} is none of {schema['enum']}"]
    if "const" in schema and value != schema["const"]:
        return [f"{where}: {value!r} is not {schema['const']!r}"]
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(isinstance(value, KINDS[kind]) for kind in kinds):
        return [f"{where}: {value!r} is none of {kinds}"]
    if isinstance(value, dict):
        known = schema.get("properties", {})
        missing = [f"{where}.{name} is missing" for name in schema.get("required", ()) if name not in value]
        unknown = [f"{where}.{name} is not in the schema" for name in value if known and name not in known]
        others = schema.get("additionalProperties", True)
        inner = {name: known.get(name, {} if others is True else others) for name in value}
        deeper = [misfits(part, inner[name], f"{where}.{name}", definitions) for name, part in value.items()]
        return missing + unknown + [misfit for some in deeper for misfit in some]
    if isinstance(value, list) and "items" in schema:
        deeper = [misfits(part, schema["items"], f"{where}[{i}]", definitions) for i, part in enumerate(value)]
        return [misfit for some in deeper for misfit in some]
    return []


class Frozen(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.shape[1] == 3 else x * 5


def test_a_right_and_a_wrong_report_fit_the_schema():
    right = onnxpatch.export(torch.nn.Linear(3, 2).eval(), (torch.ones(2, 3),), dynamo=False, max_probes=4)
    try:
        shapes = ({1: "columns"},)
        onnxpatch.export(
            Frozen().eval(), (torch.ones(2, 3),), dynamic_shapes=shapes, dynamo=False, only=(), attempts="asked"
        )
        raise AssertionError("this export is wrong, and was not refused")
    except onnxpatch.VerificationError as error:
        wrong = error.report
    for report in (right, wrong):
        assert misfits(json.loads(report.to_json()), report_schema()) == []
    assert not wrong.ok and right.ok


def test_the_check_of_this_test_can_fail():
    schema = report_schema()
    told = onnxpatch.Report("m.onnx", "Model").to_dict()
    assert misfits(told, schema) == []
    assert misfits({**told, "extra": 1}, schema) == ["report.extra is not in the schema"]
    assert misfits({**told, "ok": "yes"}, schema) == ["report.ok: 'yes' is none of ['boolean']"]
    assert misfits({k: v for k, v in told.items() if k != "checks"}, schema) == ["report.checks is missing"]
    assert misfits({**told, "exporter": 3}, schema) == ["report.exporter: 3 is none of ['string']"]
    guard = {"expression": "Eq(h, 4)", "sizes": {"h": 5.5}, "harmful": True, "source": "", "node": ""}
    assert misfits({**told, "guards": [guard]}, schema) == ["report.guards[0].sizes.h: 5.5 is none of ['integer']"]


MODEL = """
    import torch
    from einops.layers.torch import Rearrange

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = Rearrange("b c h -> b h c")
        def forward(self, x):
            return self.tokens(x) * (2 if x.shape[2] == 3 else 3)
"""


@pytest.mark.quick  # what other programs read
def test_what_every_command_writes_fits_its_schema(tmp_path, monkeypatch):
    from tests.cli.running import run
    from tests.test_docs import hooks

    (tmp_path / "net.py").write_text(textwrap.dedent(MODEL))
    monkeypatch.chdir(tmp_path)
    schemas = hooks().schemas()
    given = ["net.py:Net", "-i", "x=float32[2,4,L=3]", "--exporter", "trace"]
    asked = {
        "patches": (["list"], 0),
        "plan": (["plan", "net.py:Net"], 0),
        "operators": (["ops", "upsample*"], 0),
        "diagnosis": (["doctor", *given], 1),
        "report": (["export", *given, "net.onnx", "--attempts", "asked"], 1),
    }
    assert set(schemas) == set(asked)
    for name, (command, code) in asked.items():
        done = run(*command, "--json")
        assert done.exit_code == code, (name, done.output)
        assert misfits(json.loads(done.stdout, parse_constant=pytest.fail), schemas[name]) == [], name
    proven = json.loads(run("list", "einops-rearrange", "--prove", "--json").stdout)
    assert misfits(proven, schemas["patches"]) == []
    assert proven["patches"][0]["proof"]["status"] == "proven"
