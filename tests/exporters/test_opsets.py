"""Opsets up to 26, which onnxruntime reads and torch's converter does not write, and the choice of operators."""

from __future__ import annotations

import onnx
import pytest
import torch

import onnxpatch
from onnxpatch.formulas.nodes import target_operators, target_opset
from onnxpatch.settings import Settings, in_force

pytestmark = pytest.mark.exports


class Head(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x).flatten(1).softmax(-1)


@pytest.mark.parametrize("opset", [23, 26])
def test_the_file_declares_the_opset_that_was_asked_for(opset, tmp_path):
    file = tmp_path / "m.onnx"
    shapes = ({0: "batch", 1: "length"},)
    assert onnxpatch.export(Head().eval(), torch.randn(2, 5, 8), file, dynamic_shapes=shapes, opset_version=opset).ok
    assert [one.version for one in onnx.load(file).opset_import if one.domain == ""] == [opset]


def test_an_operator_that_changed_since_is_not_declared_as_the_later_one(monkeypatch):
    from onnxpatch.exporters import dynamo

    monkeypatch.setattr(dynamo, "_CONVERTED", 23)  # Reshape changed in 25
    with pytest.raises(onnxpatch.InputError, match=r"in opset 25, and writes 23:"):
        onnxpatch.export(Head().eval(), torch.randn(2, 5, 8), opset_version=25)


def test_patches_read_the_opset_and_the_operators_of_the_running_export():
    seen = []

    class Watching(Head):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if torch.compiler.is_exporting():
                seen.append((target_opset(), target_operators()))
            return super().forward(x)

    onnxpatch.export(Watching().eval(), torch.randn(2, 5, 8), opset_version=23, operators="onnxruntime")
    assert set(seen) == {(23, "onnxruntime")}
    assert in_force() == Settings()


def test_unknown_operators_are_refused():
    with pytest.raises(onnxpatch.InputError, match=r"operators='ort' is not known: use 'portable' or 'onnxruntime'"):
        onnxpatch.plan(Head(), operators="ort")


class Residual(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.inner(x) + x) + x


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_for_onnxruntime_a_residual_before_a_norm_is_a_sum_that_it_does_not_fuse(exporter, tmp_path):
    import onnxruntime

    file, fused = tmp_path / "m.onnx", {}
    for operators in ("portable", "onnxruntime"):
        onnxpatch.export(Residual().eval(), torch.randn(2, 5, 8), file, exporter=exporter, operators=operators)
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
        onnxruntime.InferenceSession(file, options)
        fused[operators] = {node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node}
    assert "SkipLayerNormalization" in fused["portable"], "onnxruntime fuses no longer: residual_sums can go"
    assert "LayerNormalization" in fused["onnxruntime"] and "SkipLayerNormalization" not in fused["onnxruntime"]
