"""From opset 23 on, rotary position encodings are one operator, which takes tables for every row of the batch."""

from __future__ import annotations

import onnx
import pytest
import torch
from torch import Tensor

import onnxpatch
from onnxpatch.onnxfile.graph import operator_counts

pytestmark = pytest.mark.exports


class Rotary(torch.nn.Module):
    """As Llama writes it: the tables are of one row, unless the caller gives positions for each."""

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        positions = torch.arange(x.shape[2])[None] if positions is None else positions
        angles = positions[:, :, None].float() * torch.tensor([1.0, 0.1, 0.01])
        table = torch.cat((angles, angles), dim=-1)
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * table.cos().unsqueeze(1) + turned * table.sin().unsqueeze(1)


@pytest.mark.parametrize("given", [pytest.param(False, marks=pytest.mark.quick), True])
def test_tables_of_one_row_serve_every_batch(tmp_path, given):
    inputs = {"x": torch.randn(3, 2, 5, 6)} | ({"positions": torch.arange(15).view(3, 5)} if given else {})
    shapes = {"x": {0: "batch", 2: "length"}} | ({"positions": {0: "batch", 1: "length"}} if given else {})
    file = tmp_path / "rotary.onnx"
    report = onnxpatch.export(
        Rotary(), (), file, kwargs=inputs, dynamic_shapes=shapes, exporter="dynamo", opset_version=23, attempts="asked"
    )
    assert report.verdict == "right"
    assert operator_counts(onnx.load(file))["RotaryEmbedding"] == 1
