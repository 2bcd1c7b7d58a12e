"""Sizes of outputs are called after the output, where torch called them after an operator."""

from __future__ import annotations

import onnx
import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch.exporters.torchscript import name_output_sizes

pytestmark = pytest.mark.exports


class Turned(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"turned": x.reshape(x.shape[0], -1, 2).transpose(1, 2), "same": x * 2}


def test_names_of_sizes_under_trace(tmp_path: object) -> None:
    file = f"{tmp_path}/m.onnx"
    shapes = ({0: "batch", 1: "n"},)
    assert onnxpatch.export(Turned().eval(), (torch.randn(2, 6),), file, exporter="trace", dynamic_shapes=shapes).ok
    turned, same = (
        [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim]
        for value in onnx.load(file).graph.output
    )
    assert same == ["batch", "n"]
    assert turned[0] in ("batch", "turned_dim_0") and turned[2] == "turned_dim_2"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("Add3_dim_0", "y_dim_0"), ("LayerNormalizationonnx::Gather_165_dim_0", "y_dim_0"), ("n_tokens", "n_tokens")],
)
def test_names_of_the_user_stay(given: str, wanted: str) -> None:
    value = onnx.helper.make_tensor_value_info
    float32 = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph([], "g", [value("x", float32, ["Add_dim_0"])], [value("y", float32, [given])])
    graph.value_info.append(value("inner", float32, [given, "Add_dim_0"]))
    name_output_sizes(graph)
    assert graph.output[0].type.tensor_type.shape.dim[0].dim_param == wanted
    assert [size.dim_param for size in graph.value_info[0].type.tensor_type.shape.dim] == [wanted, "Add_dim_0"]
