"""Division of fractions rounded down, `x // 0.7`, exact at multiples as Python and eager compute it."""

from __future__ import annotations

import torch
from torch import Tensor


def floor_quotient(input: Tensor, other: Tensor | float) -> Tensor:
    """`input // other` of floats of any shape: what leaves no rest is divided. 7 // 0.7 is 9, since 0.7 is a little
    more than seven tenths; the floor of 7 / 0.7 is 10."""
    rest = torch.fmod(input, other)
    quotient = torch.true_divide(input - rest, other)
    below = (rest < 0) ^ (torch.as_tensor(other) < 0) if isinstance(other, Tensor) or other < 0 else rest < 0
    # Without its rest the quotient is a whole number but for rounding, up or down: so round, not floor.
    whole = torch.round(torch.where(below & (rest != 0), quotient - 1, quotient))
    if isinstance(other, Tensor):
        return torch.where(other == 0, torch.true_divide(input, other), whole)
    return whole if other else torch.true_divide(input, other)


def floor_rest(input: Tensor, other: Tensor | float) -> Tensor:
    """`input % other` of floats: the rest, with the sign of `other`."""
    rest = torch.fmod(input, other)
    other = torch.as_tensor(other, dtype=rest.dtype)
    return torch.where((rest != 0) & ((rest < 0) ^ (other < 0)), rest + other, rest)
