"""Sizes are computed at other sizes of the inputs, under both exporters."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import onnxpatch
from onnxpatch.formulas.symbolic import sampled_sizes

pytestmark = pytest.mark.exports

FOUND: dict[str, list[tuple[int, ...]] | None] = {}


class Asks(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        half = x[:, ::2]
        if onnxpatch.exporting():
            FOUND["half"] = sampled_sizes((x.shape[1], half.shape[1]))
            FOUND["other"] = sampled_sizes((x.shape[1], y.shape[1]))
            FOUND["static"] = sampled_sizes((x.shape[1], 6))
            FOUND["data"] = sampled_sizes((x.shape[1], x.nonzero().shape[0]))
        return half.sum() + y.sum()


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
def test_what_sizes_are_at_other_sizes_of_the_inputs(exporter: str) -> None:
    FOUND.clear()
    sizes = ({1: "n"}, {1: "k"})
    onnxpatch.export(Asks().eval(), (torch.ones(2, 6), torch.ones(2, 3)), dynamic_shapes=sizes, exporter=exporter)
    half, other, static, data = (FOUND[name] for name in ("half", "other", "static", "data"))
    assert half and other and static and data
    assert all(b == (a + 1) // 2 for a, b in half) and len(set(half)) > 20
    assert any(b != (a + 1) // 2 for a, b in other)
    assert {b for _, b in static} == {6}
    assert len({b for _, b in data}) > 5
