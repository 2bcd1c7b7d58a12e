"""The schema of reports says what a real report holds."""

from __future__ import annotations

import json

import torch

import onnxpatch
from onnxpatch.reporting.schema import report_schema

KINDS = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
    "array": list,
    "object": dict,
}


def misfits(value, schema, where="report"):
    """Where a value is not as the schema says: the part of JSON Schema that report_schema uses."""
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
        inner = {name: known.get(name, schema.get("additionalProperties", {})) for name in value}
        return (
            missing
            + unknown
            + [m for name, held in value.items() for m in misfits(held, inner[name], f"{where}.{name}")]
        )
    if isinstance(value, list) and "items" in schema:
        return [m for i, held in enumerate(value) for m in misfits(held, schema["items"], f"{where}[{i}]")]
    return []


class Frozen(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.shape[1] == 3 else x * 5


def test_a_right_and_a_wrong_report_fit_the_schema():
    right = onnxpatch.export(torch.nn.Linear(3, 2).eval(), (torch.ones(2, 3),), dynamo=False, max_probes=4)
    try:
        shapes = ({1: "columns"},)
        onnxpatch.export(Frozen().eval(), (torch.ones(2, 3),), dynamic_shapes=shapes, dynamo=False, only=())
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
