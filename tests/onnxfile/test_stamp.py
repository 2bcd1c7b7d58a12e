"""What an exported file says of its own making."""

from __future__ import annotations

import onnx
import pytest
import torch

import onnxpatch
from onnxpatch.attempts.finalize_file import digest
from onnxpatch.onnxfile import metadata
from tests import exporting

pytestmark = pytest.mark.exports


def layer():
    from einops.layers.torch import Rearrange

    return torch.nn.Sequential(Rearrange("b (h p) -> b h p", p=2), torch.nn.Linear(2, 3)).eval()


def test_export_writes_the_applied_plan_into_the_file(tmp_path):
    file = tmp_path / "m.onnx"
    report = onnxpatch.export(layer(), (torch.ones(2, 4),), file, dynamo=False)
    onnx.checker.check_model(onnx.load(file), full_check=True)
    made = metadata.read(onnx.load(file))
    assert made.version == onnxpatch.__version__
    assert made.exporter == "trace"
    assert made.plan == report.plan and made.plan[0]["path"] == "0"
    assert made.versions["torch"] == report.versions["torch"]
    patch = onnxpatch.REGISTRY[made.plan[0]["patch"]]
    assert made.digest == digest([patch])


def test_verify_tells_it(tmp_path):
    file, model = tmp_path / "m.onnx", layer()
    onnxpatch.export(model, (torch.ones(2, 4),), file, dynamo=False)
    report = onnxpatch.verify(file, model, (torch.ones(2, 4),))
    assert any(f"exported by onnxpatch {onnxpatch.__version__} (trace)" in note for note in report.notes)


def test_a_file_made_without_the_kit_has_none():
    file = exporting.export(torch.nn.Linear(3, 2), (torch.ones(2, 3),), "trace")
    assert metadata.read(onnx.load_from_string(file)) is None


def test_the_digest_follows_the_code_of_the_patches(registry):
    def declare(number):
        body = {1: lambda self, x: x + 1, 2: lambda self, x: x + 2}[number]
        kind = type("StandIn", (), {"forward": body, "__module__": __name__})
        return onnxpatch.Patch("same-name", ("a.B",), kind, "why")

    assert digest([]) == digest(())
    first, *rest = onnxpatch.REGISTRY
    assert digest([first, *rest]) == digest([*rest, first])
    assert digest([first]) != digest([rest[0]])
    assert digest([declare(1)]) != digest([])
