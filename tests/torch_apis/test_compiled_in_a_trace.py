"""Functions that are compiled while the model is traced, as by `torch.jit.script_if_tracing`, keep ifs and loops."""

from __future__ import annotations

import builtins

import pytest
import torch
from torch import Tensor

import onnxpatch
from tests.layers import Computes

pytestmark = pytest.mark.exports


@torch.jit.script_if_tracing
def padded(x: Tensor, multiple: int):
    more = int(x.shape[-1]) % multiple
    if more:
        return torch.cat([x, torch.zeros([x.shape[0], multiple - more])], -1)
    return x


@torch.jit.script_if_tracing
def doubled(x: Tensor):
    for _ in range(int(x.shape[0])):
        x = x * 2
    return x


def also_counts(x):
    """`int` and `float` of the same file in traced code, before and behind what is compiled."""
    return padded(x[:, : int(x.shape[1] * 0.7) + 1], 4) * float(x.shape[0]) + int(x.shape[1] / 2)


@pytest.mark.parametrize("function", [lambda x: padded(x, 8) * 2, doubled, also_counts], ids=["if", "loop", "beside"])
def test_ifs_and_loops_at_other_sizes(function) -> None:
    shapes, model = ({0: "batch", 1: "length"},), Computes(function).eval()
    asked = {"exporter": "trace", "attempts": "asked"}
    assert onnxpatch.export(model, (torch.randn(2, 16),), dynamic_shapes=shapes, **asked).ok
    assert int is builtins.int and "int" not in globals()
