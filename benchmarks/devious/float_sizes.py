"""Sizes multiplied by fractions: Python computes in float64, a graph in float32 differs at a few sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.devious.kinds import devious, floats, sizes

ROWS = ({0: "n"},)
MANY = sizes(6, *range(1, 1025, 7), *range(10, 1010, 10), 100, 200, 300, 400, 500, width=1)


@devious(MANY, ROWS)
def ceil_of_three_tenths(x: Tensor) -> Tensor:
    return x[: math.ceil(x.shape[0] * 0.3)]


@devious(MANY, ROWS)
def int_of_29_percent(x: Tensor) -> Tensor:
    return x[: int(x.shape[0] * 0.29)]


@devious(MANY, ROWS)
def floor_of_seven_tenths(x: Tensor) -> Tensor:
    return x[math.floor(x.shape[0] * 0.7) :]


@devious(MANY, ROWS)
def int_over_a_tenth(x: Tensor) -> Tensor:
    return torch.arange(int(x.shape[0] / 0.1)).sum() + x


@devious(MANY, ROWS)
def ceil_of_a_tenth(x: Tensor) -> Tensor:
    return x[: math.ceil(0.1 * x.shape[0])]


@devious(MANY, ROWS)
def eleven_tenths(x: Tensor) -> Tensor:
    return x.sum() + torch.arange(int(x.shape[0] * 1.1))


@devious(MANY, ROWS)
def rounded(x: Tensor) -> Tensor:
    return x[: round(x.shape[0] * 0.15)]


class KeepRatio(nn.Module):
    """Keeps a share of the rows."""

    def __init__(self, ratio: float = 0.57) -> None:
        super().__init__()
        self.ratio = ratio

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        kept = int(x.shape[0] * (1 - self.ratio))
        return x[:kept], x[kept:]


devious(MANY, ROWS)(KeepRatio)


def images(*tried: int) -> Callable[[], list[Any]]:
    return lambda: [(floats(1, 1, n, n + 2, seed=n),) for n in tried]


@devious(images(8, *range(5, 60, 5), 10, 20, 30), ({2: "h", 3: "w"},))
def crop_of_87_percent(x: Tensor) -> Tensor:
    h, w = int(x.shape[-2] * 0.875), int(x.shape[-1] * 0.875)
    top, left = (x.shape[-2] - h) // 2, (x.shape[-1] - w) // 2
    return x[..., top : top + h, left : left + w]


@devious(MANY, ROWS)
def whole_steps(x: Tensor) -> Tensor:
    return x[::2] if x.shape[0] * 0.1 == int(x.shape[0] * 0.1) else x
