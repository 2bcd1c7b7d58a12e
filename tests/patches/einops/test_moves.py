"""A permutation that consists of two moves is written as two, which onnxruntime does not join again."""

from __future__ import annotations

import onnxruntime
import pytest
import torch
from einops.layers.torch import Rearrange

import onnxpatch

pytestmark = pytest.mark.exports


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_pixel_shuffle_is_two_transposes_with_a_reshape_between(exporter, tmp_path):
    import onnx

    layer, file = Rearrange("b (c r s) h w -> b c (h r) (w s)", r=2, s=2).eval(), tmp_path / "m.onnx"
    free = ({0: "b", 2: "h", 3: "w"},)
    report = onnxpatch.export(layer, torch.randn(2, 12, 3, 5), file, dynamic_shapes=free, exporter=exporter)
    assert report.ok
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(file, options)
    moves = [n.attribute[0].ints for n in onnx.load(tmp_path / "optimized.onnx").graph.node if n.op_type == "Transpose"]
    assert [list(move) for move in moves] == [[0, 1, 3, 4, 2], [0, 1, 3, 2, 4, 5]]
