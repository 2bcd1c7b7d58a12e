"""An interrupt at any line of the kit leaves nothing changed, once the exception has left the call."""

from __future__ import annotations

import io
import math

import pytest
import torch
from einops.layers.torch import Rearrange
from torch import nn

import onnxpatch
from tests.patching.interrupting import leaks


class Net(nn.Module):
    """A layer that is swapped, functions that are replaced, and an `if` on data."""

    def __init__(self):
        super().__init__()
        self.rearrange, self.linear = Rearrange("b c (h p) -> b h (c p)", p=2), nn.Linear(6, 2)

    def forward(self, x):
        y = self.linear(self.rearrange(x)) * math.sqrt(x.shape[2] // 2)
        if type(self.linear) is nn.Linear and y.sum() > 1000:
            y = y * 2
        return y


X, SHAPES = torch.zeros(2, 3, 8), {"x": {2: "n"}}


def plain(model, exporter):
    with onnxpatch.patched(model):
        options = dict(dynamo=True, dynamic_shapes=({2: "n"},)) if exporter == "dynamo" else dict(dynamo=False)
        torch.onnx.export(model, (X,), io.BytesIO(), verbose=False, **options)


def whole(model, exporter):
    onnxpatch.export(model, (X,), exporter=exporter, dynamic_shapes=SHAPES, max_probes=2)


def branches(model, exporter):
    onnxpatch.export(model, (X,), exporter=exporter, dynamic_shapes=SHAPES, branches=True, max_probes=2)


def outcome(how, exporter, times, seed):
    model = Net().eval().requires_grad_(False)
    return leaks(model, lambda: how(model, exporter), times, seed)


@pytest.mark.parametrize(("how", "times"), [(plain, 8), (whole, 2)])
def test_an_interrupt_at_random_lines(how, times):
    assert outcome(how, "trace", times, 0) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 8))
@pytest.mark.parametrize(
    ("how", "exporter", "times"),
    [(plain, "trace", 100), (whole, "trace", 60), (branches, "trace", 60), (plain, "dynamo", 30), (whole, "dynamo", 20),
     (branches, "dynamo", 20)],
)  # fmt: skip
def test_interrupts_at_two_thousand_random_lines(how, exporter, times, seed):
    assert outcome(how, exporter, times, seed) == []
