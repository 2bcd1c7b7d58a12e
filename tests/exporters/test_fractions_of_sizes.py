"""Fractions of sizes under dynamo, in double precision as Python computes them."""

import math

import pytest
import torch
from torch import Tensor, nn

import onnxpatch

pytestmark = pytest.mark.exports


class Shares(nn.Module):
    """Parts of a length, rounded every way; at these lengths float32 rounds most of them otherwise."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        n = x.shape[1]
        up, down, near = math.ceil(n * 0.3), int(n * 0.29 + 1 / n), round(n * 0.55)
        return x[:, :up], x[:, :down], x[:, :near], x[:, : math.floor((n / 3) ** 2 / n + 0.1)]


def test_fractions_that_float32_rounds_otherwise():
    data = [(torch.randn(1, n, 2),) for n in (8, 10, 20, 50, 57, 58, 100, 110, 200, 1000)]
    report = onnxpatch.export(Shares().eval(), data[0], dynamic_shapes=({1: "n"},), data=data, attempts="asked")
    assert report.ok


class Tenths(nn.Module):
    """Quotients of floats, many of them at exact multiples."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x // 0.7, -x // x.abs().clamp(min=0.1)


def test_quotients_at_exact_multiples():
    data = [(torch.arange(n) * 0.7,) for n in (9, 30, 100)] + [(torch.arange(20.0) - 9,)]
    report = onnxpatch.export(Tenths().eval(), data[0], dynamic_shapes=({0: "n"},), data=data, attempts="asked")
    assert report.ok
