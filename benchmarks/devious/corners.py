"""Operators at the corners of their definition: ties, signs of zero, wrapped whole numbers, exact borders."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.devious.kinds import devious, floats, sizes

ROWS = ({0: "n"},)
TIES = torch.tensor([[2.0, 5.0, 5.0, 1.0], [3.0, 3.0, 3.0, 3.0], [-1.0, -4.0, -4.0, -1.0]])


@devious(lambda: [(floats(3, 4),), (TIES,)], ROWS)
def first_largest(x: Tensor) -> Tensor:
    return x.argmax(1) * 10 + x.argmin(1)


@devious(lambda: [(floats(3, 4),), (TIES,)], ROWS)
def last_of_equal_maxima(x: Tensor) -> tuple[Tensor, Tensor]:
    values, places = x.cummax(1)
    return values, places


@devious(lambda: [(floats(3, 4),), (TIES,), (TIES.round(),)], ROWS)
def stable_order(x: Tensor) -> Tensor:
    return x.sort(dim=1, stable=True, descending=True).indices


@devious(lambda: [(floats(3, 4),), (torch.tensor([[-1.0, 0.0, 0.5, 1.0]]),)], ROWS)
def on_the_borders(x: Tensor) -> Tensor:
    edges = torch.tensor([-1.0, 0.0, 0.5, 1.0])
    return torch.bucketize(x, edges) * 10 + torch.bucketize(x, edges, right=True)


@devious(
    lambda: [(torch.tensor([[3, 40]], dtype=torch.uint8),), (torch.tensor([[200, 255]], dtype=torch.uint8),)], ROWS
)
def wrapped_bytes(x: Tensor) -> Tensor:
    return x * 2 + 100


@devious(lambda: [(torch.tensor([7, 9]),), (torch.tensor([-7, -9, -1, 0]),)], ROWS)
def negative_rests(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x % 4, x // 4, torch.div(x, 4, rounding_mode="trunc")


@devious(lambda: [(floats(4),), (torch.tensor([0.0, -0.0, 1.0, -1.0]),)])
def signs_of_zero(x: Tensor) -> Tensor:
    return torch.atan2(x, -torch.ones(4)) + torch.sign(x) + torch.copysign(torch.ones(4), x)


@devious(lambda: [(floats(4),), (torch.tensor([0.0, 0.0, 2.0, -2.0]),)])
def zero_to_zero(x: Tensor) -> Tensor:
    return x.abs() ** x.abs() + torch.xlogy(x, x.abs())


@devious(lambda: [(torch.tensor([100000, 3]).int(),), (torch.tensor([2**31 - 1, -(2**31)]).int(),)], ROWS)
def overflowing(x: Tensor) -> Tensor:
    return x * 3 + 1


@devious(lambda: [(floats(2, 5),), (torch.full((2, 5), 2.5),), (torch.arange(10.0).reshape(2, 5) - 4.5,)])
def halves(x: Tensor) -> Tensor:
    return x.round() + (x / 5).round(decimals=1)


@devious(lambda: [(floats(2, 5) * 3,), (floats(2, 5) * 300,), (torch.full((2, 5), -0.5),)])
def to_bytes(x: Tensor) -> Tensor:
    return x.clamp(0, 255).to(torch.uint8).float() + x.to(torch.int32)


@devious(lambda: [(floats(4, 3),), (torch.tensor([[1.0, 1.0, 2.0], [4.0, 0.0, 0.0]]),)], ROWS)
def lower_median(x: Tensor) -> Tensor:
    return x.median(1).values + x.flatten().median()


@devious(sizes(4, 1, 2, 7), ROWS)
def shuffled_and_sorted(x: Tensor) -> Tensor:
    return x[torch.randperm(x.shape[0])].sort(0).values


@devious(lambda: [(floats(3, 4),), (floats(5, 4),)], ROWS)
def noise_without_spread(x: Tensor) -> Tensor:
    return torch.normal(x, torch.zeros_like(x))
