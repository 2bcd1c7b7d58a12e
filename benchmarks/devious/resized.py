"""Places computed from sizes in float32: nearest neighbours, steps of a range, bins of a pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.devious.kinds import devious, floats, sizes

IMAGE = ({2: "h", 3: "w"},)


def images(*tried: int) -> Callable[[], list[Any]]:
    return lambda: [(floats(1, 1, n, n + 1, seed=n),) for n in tried]


def pairs(*tried: tuple[int, int]) -> Callable[[], list[Any]]:
    return lambda: [(floats(1, 1, a, a, seed=a), floats(1, 1, b, b, seed=b)) for a, b in tried]


@devious(images(17, *range(2, 400, 9), 45, 85, 182), IMAGE)
def to_fifty(x: Tensor) -> Tensor:
    return F.interpolate(x, size=(50, 50))


@devious(images(48, *range(2, 200, 7), 20, 40), IMAGE)
def to_half_of_the_example(x: Tensor) -> Tensor:
    return F.interpolate(x, 24, None, "nearest")


@devious(pairs((10, 20), (14, 4), (26, 22), (56, 4), (5, 10), (3, 50)), ({2: "h", 3: "w"}, {2: "k", 3: "l"}))
def mask_at_the_size_of_the_other(mask: Tensor, x: Tensor) -> Tensor:
    return F.interpolate(mask, size=x.shape[2:]) * x


@devious(images(20, *range(4, 300, 11)), IMAGE)
def three_tenths_of_it(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=0.3)


@devious(images(20, *range(4, 300, 11)), IMAGE)
def seven_thirds_of_it(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=7 / 3, recompute_scale_factor=True)


@devious(images(20, *range(2, 300, 11)), IMAGE)
def pooled_and_back(x: Tensor) -> Tensor:
    return F.interpolate(F.max_pool2d(x, 2, ceil_mode=True), size=x.shape[2:])


@devious(images(21, *range(7, 300, 13)), IMAGE)
def pooled_to_seven(x: Tensor) -> Tensor:
    return F.adaptive_avg_pool2d(x, 7)


@devious(sizes(10, *range(1, 400, 7), 3, 30, 70, width=1), ({0: "n"},))
def steps_of_a_tenth(x: Tensor) -> Tensor:
    return torch.arange(0, x.shape[0] * 0.1, 0.1).cumsum(0)


@devious(sizes(10, *range(2, 400, 7), width=1), ({0: "n"},))
def evenly_chosen(x: Tensor) -> Tensor:
    return x[torch.linspace(0, x.shape[0] - 1, 5).long()]


@devious(sizes(10, *range(2, 400, 7), width=1), ({0: "n"},))
def every_place_halved(x: Tensor) -> Tensor:
    places = torch.arange(x.shape[0]) * (1 / 3)
    return x[places.long()]
