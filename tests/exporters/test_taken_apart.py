"""Functions that torch.export takes apart into primitives of torch, for which torch has no translation."""

from __future__ import annotations

import pytest
import torch

import onnxpatch

pytestmark = pytest.mark.exports


class Xlog1py(torch.nn.Module):
    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.xlog1py(x, self.number)


@pytest.mark.parametrize("number", [2.0, 3, True], ids=str)
def test_a_number_beside_a_tensor(number: float) -> None:
    assert onnxpatch.export(
        Xlog1py(number).eval(), (torch.randn(2, 3),), dynamic_shapes=({0: "n"},), attempts="asked"
    ).ok


class FilledColumn(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y.t().index_fill_(0, torch.tensor([1]), 1.5)
        return y


def test_a_write_that_keeps_the_strides_of_a_view() -> None:
    assert onnxpatch.export(
        FilledColumn().eval(), (torch.randn(2, 3),), exporter="dynamo", dynamic_shapes=({0: "n"},), attempts="asked"
    ).ok
