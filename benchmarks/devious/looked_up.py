"""Sizes and data by which Python looks something up: tables, sets, caches, text made of numbers."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from benchmarks.devious.kinds import Args, devious, floats, planted, sizes

ROWS, PLANE = ({0: "n"},), ({2: "h", 3: "w"},)
IDS = torch.tensor([[5, 9, 12, 3], [7, 30, 2, 11]])


def images() -> list[Args]:
    return [(floats(1, 2, h, w, seed=h * 100 + w),) for h, w in ((10, 12), (12, 10), (8, 8), (16, 12), (16, 31))]


class StopIds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stop = {1700, 9900}

    def forward(self, ids: Tensor) -> Tensor:
        return ids.flip(0) if ids[0, -1].item() in self.stop else ids


devious(lambda: [(IDS,), (planted(IDS, 1700, 3),), (planted(IDS, 9900, 3),), (planted(IDS, 9900, 2),)])(StopIds)


@devious(lambda: [(torch.tensor(n), floats(4)) for n in (3, 42, 420)])
def written_number(mode: Tensor, x: Tensor) -> Tensor:
    return x * 5 if str(int(mode)) == "42" else x


class ByMode(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = {0: 1.0, 11: 2.0, 23: -4.0}

    def forward(self, mode: Tensor, x: Tensor) -> Tensor:
        return x * self.table.get(int(mode), 0.5)


devious(lambda: [(torch.tensor(n), floats(4)) for n in (0, 11, 23, 5)])(ByMode)


class Known(nn.Module):
    """A scale for two lengths, and none for others."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = {12: 2.0, 40: 3.0}

    def forward(self, x: Tensor) -> Tensor:
        try:
            return x * self.steps[x.shape[0]]
        except KeyError:
            return x


devious(sizes(10, 12, 40, 41), ROWS)(Known)


@devious(sizes(10, 25, 26), ROWS)
def written_in_place(x: Tensor) -> Tensor:
    return {25: x * 2}.get(x.shape[0], x)


class Heads(nn.Module):
    """A layer of its own for one length."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleDict({"n12": nn.Linear(3, 2), "other": nn.Linear(3, 2)})

    def forward(self, x: Tensor) -> Tensor:
        name = f"n{x.shape[0]}"
        return self.heads[name if name in self.heads else "other"](x)


devious(sizes(10, 12, 11, 24), ROWS)(Heads)


@devious(images, PLANE)
def written_sizes(x: Tensor) -> Tensor:
    return x * 3 if f"{x.shape[-2]}x{x.shape[-1]}" in {"8x8", "16x12"} else x


class Anchors(nn.Module):
    """Keeps a grid for each size that it has met."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[int, ...], Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        key = tuple(x.shape[-2:])
        if key not in self.kept:
            grid = torch.meshgrid(torch.arange(key[0]), torch.arange(key[1]), indexing="ij")
            self.kept[key] = torch.stack(grid)
        return x + self.kept[key]


devious(images, PLANE)(Anchors)


@functools.lru_cache(maxsize=8)
def _ramp(n: int) -> Tensor:
    return torch.arange(n)[:, None] / 10


@devious(sizes(10, 11, 3, 64), ROWS)
def ramp_of_a_cache(x: Tensor) -> Tensor:
    return x + _ramp(x.shape[0])


@devious(sizes(10, 4, 5, 100, 37), ROWS)
def place_of_a_name(x: Tensor) -> Tensor:
    names = [f"row{i}" for i in range(x.shape[0])]
    return x[names.index("row3")] + x[len(names) // 2]


@devious(lambda: [(floats(24, 2), torch.tensor([[1, 1, 4, 6]])), (floats(24, 2), torch.tensor([[1, 1, 6, 4]]))])
def rows_of_the_grid(x: Tensor, grid: Tensor) -> Tensor:
    films, frames, height, width = grid[0].tolist()
    # Of one frame: eager takes no other grid than 4 by 6 and 6 by 4.
    return x * torch.ones(1, 1)[films - 1, frames - 1] * torch.arange(height).repeat_interleave(width)[:, None]
