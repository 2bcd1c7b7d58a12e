"""Opsets up to 26, which onnxruntime reads and torch's converter does not write, and the choice of operators."""

from __future__ import annotations

import onnx
import pytest
import torch

import onnxpatch
from onnxpatch.formulas.nodes import target_operators, target_opset
from onnxpatch.settings import Settings, in_force


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
    with pytest.raises(onnxpatch.InputError, match=r"in opset 25: what it writes has opset 23"):
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
