"""Weights without elements, such as no class tokens, in onnxruntime and in OpenVINO."""

from __future__ import annotations

import onnx
import pytest
import torch

import onnxpatch
from onnxpatch.onnxfile.runtime_forms import write_as_nodes

pytestmark = pytest.mark.exports


class Tokens(torch.nn.Module):
    """A transformer that is told to have no class tokens; it counts them as well."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = torch.nn.Parameter(torch.randn(1, 0, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.tokens.expand(x.shape[0], -1, -1)
        return torch.cat((tokens, x), dim=1)[:, tokens.shape[1]]


def exported(path, **options):
    x = torch.randn(2, 5, 4)
    return onnxpatch.export(Tokens().eval(), (x,), path, dynamic_shapes=({0: "b", 1: "n"},), **options)


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
def test_no_class_tokens_in_openvino(tmp_path, exporter):
    pytest.importorskip("openvino")
    report = exported(tmp_path / "m.onnx", exporter=exporter, runtime=["onnxruntime", "openvino"], attempts="asked")
    assert report.ok


def test_the_weight_is_made_by_a_node(tmp_path):
    exported(tmp_path / "m.onnx", exporter="trace")
    graph = onnx.load(tmp_path / "m.onnx").graph
    assert not [one.name for one in graph.initializer if 0 in one.dims]
    assert [node.op_type for node in graph.node][:2] == ["Constant", "ConstantOfShape"]


def test_other_weights_stay(tmp_path):
    layer = torch.nn.Linear(3, 2)
    torch.onnx.export(layer, (torch.randn(1, 3),), str(tmp_path / "m.onnx"), dynamo=False)
    before = (tmp_path / "m.onnx").read_bytes()
    write_as_nodes(tmp_path / "m.onnx")
    assert onnx.load(tmp_path / "m.onnx") == onnx.load_from_string(before)
