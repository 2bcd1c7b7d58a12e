"""`torch.stack` and `torch.cat` of a list with what every round of a plain loop made: one tensor of the graph in it."""

from __future__ import annotations

from collections.abc import Callable

import torch


class StackedRounds(list[object]):
    """The parts of a list that is joined; those of the loop's rounds are one tensor [rounds, ...]."""

    def __init__(self, before: list[torch.Tensor], rounds: torch.Tensor, after: list[torch.Tensor]) -> None:
        super().__init__([*before, rounds, *after])
        self.before, self.rounds, self.after = before, rounds, after


def joined(function: Callable[..., object], parts: StackedRounds, dim: int = 0) -> torch.Tensor:
    """`torch.stack` or `torch.cat` of a list with a loop's rounds in it."""
    dims = parts.rounds.dim() - 1
    if function is torch.stack:
        at = dim % (dims + 1)
        middle = parts.rounds.movedim(0, at)
        sides = [[part.unsqueeze(at) for part in side] for side in (parts.before, parts.after)]
    else:
        at = dim % dims
        middle = parts.rounds.movedim(0, at).flatten(at, at + 1)
        sides = [parts.before, parts.after]
    return torch.cat([*sides[0], middle, *sides[1]], at) if any(sides) else middle
