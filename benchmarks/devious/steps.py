"""Data divided into steps: at exact multiples a quotient and its remainder fall to one side or the other."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.devious.kinds import devious, floats

ROWS = ({0: "n"},)
TENTHS = torch.arange(-30, 31).reshape(-1, 1).repeat(1, 3) * 0.7


@devious(lambda: [(floats(4, 3),), (TENTHS,), (torch.arange(60).reshape(-1, 3) * 0.7,)], ROWS)
def steps_of_seven_tenths(x: Tensor) -> Tensor:
    return x // 0.7


@devious(lambda: [(floats(4, 3),), (torch.arange(60).reshape(-1, 3) * 0.3,)], ROWS)
def rest_of_three_tenths(x: Tensor) -> Tensor:
    return (x % 0.3 > 0.15).float()


@devious(lambda: [(floats(4, 3).abs(),), (torch.arange(90).reshape(-1, 3) * 0.1,)], ROWS)
def bucket_of_a_tenth(x: Tensor) -> Tensor:
    return torch.floor_divide(x, 0.1).long()


@devious(lambda: [(floats(4, 3),), (torch.arange(-9, 9).reshape(-1, 3) + 0.5,)], ROWS)
def half_to_even(x: Tensor) -> Tensor:
    return x.round()


@devious(lambda: [(floats(4, 3),), (torch.arange(-9, 9).reshape(-1, 3) * 2.0,)], ROWS)
def even_and_odd(x: Tensor) -> Tensor:
    return torch.where(x % 2 == 0, x * 10, x)


@devious(lambda: [(torch.tensor([3, 8, -5]),), (torch.tensor([-8, -7, -1, 0, 7]),)], ROWS)
def whole_steps_below_zero(x: Tensor) -> Tensor:
    return torch.div(x, 4, rounding_mode="floor") + torch.fmod(x, 3)
