"""Checks on tensors computed from sizes, which stay tensors where eager has numbers."""

import pytest
import torch
from torch import Tensor, nn

import onnxpatch
from tests.exporting import export, run, wrong

pytestmark = pytest.mark.exports


class Levels(nn.Module):
    """Two flattened levels whose sizes have to add up, checked as Deformable DETR does."""

    def forward(self, x: Tensor) -> Tensor:
        levels = [x, x[:, ::2]]
        lengths = torch.stack([torch.as_tensor(level.shape[1]) for level in levels])
        rows = torch.cat(levels, 1)
        torch._check_tensor_all_with(ValueError, lengths.sum() == rows.shape[1])
        return rows.cumsum(1)


def test_a_check_of_sizes_under_trace():
    model = Levels().eval()
    with onnxpatch.patched(model, exporter="trace"):
        file = export(model, (torch.randn(2, 5, 3),), "trace", ({0: "batch", 1: "length"},))
    for length in (4, 9):
        x = torch.randn(3, length, 3)
        assert wrong(run(file, (x,)), model(x), 1e-6) is None
