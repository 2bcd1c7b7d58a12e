"""What a forward keeps in Python: caches that grow, tables made once, globals, flags that a call sets."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.devious.kinds import devious, floats, sizes

ROWS = ({0: "n"},)
SCALE = {"factor": 3.0}


class GrowingTable(nn.Module):
    """Keeps a table of positions, and makes a longer one when it needs it."""

    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        if n > self.length:
            self.length = n
            self.table = torch.arange(n).float()[:, None].sin()
        return x + self.table[:n]


devious(sizes(6, 4, 9, 40, 1), ROWS)(GrowingTable)


class KeptTable(nn.Module):
    """A table made for 16 rows at least, longer for longer inputs, in a dict of a closure."""

    def __init__(self) -> None:
        super().__init__()
        kept: dict[int, Tensor] = {}

        def table(n: int) -> Tensor:
            if n not in kept:
                kept[n] = torch.arange(n).float()[:, None].cos()
            return kept[n]

        self.table = table

    def forward(self, x: Tensor) -> Tensor:
        return x * self.table(max(16, x.shape[0]))[: x.shape[0]]


devious(sizes(6, 4, 17, 40, 1), ROWS)(KeptTable)


@devious(sizes(6, 4, 9), ROWS)
def scale_of_the_module(x: Tensor) -> Tensor:
    return x * SCALE["factor"] if SCALE else x


class Clipped(nn.Module):
    """A flag in a buffer that the forward reads, set when the model was built."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("clip", torch.tensor(1))
        self.register_buffer("limit", torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        return x.clamp(max=self.limit.item()) if self.clip == 1 and x.max() > self.limit else x * 2


devious(lambda: [(floats(3, 4).clamp(max=1),), (floats(3, 4) * 3,)], ROWS, branches=True)(Clipped)


class Remembered(nn.Module):
    """Adds what it saw in the call before, which each run begins without."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Any = None

    def forward(self, x: Tensor) -> Tensor:
        out = x if self.before is None else x + self.before
        self.before = x.sum(0)
        return out


devious(lambda: [(floats(3, 4),), (floats(5, 4) * 3,)], ROWS)(Remembered)


class TwoDtypes(nn.Module):
    """Computes in float64 where the numbers are large."""

    def forward(self, x: Tensor) -> Tensor:
        return (x.double() ** 2).sum().float() if x.abs().max() > 1e4 else (x**2).mean()


devious(lambda: [(floats(3, 4),), (floats(3, 4) * 1e6,)], branches=True)(TwoDtypes)
