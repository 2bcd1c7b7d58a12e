"""Models that branch on sizes far from their example: both exporters keep the example's side without a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

IMAGE = ({0: "b", 2: "h", 3: "w"},)
TEXT = ({0: "b", 1: "t"},)


class TallIsHalved(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[2] > 512:
            x = F.avg_pool2d(x, 2)
        return x.amax((2, 3))


class CutAtLimit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.limit, self.table = 512, nn.Embedding(512, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = min(x.shape[1], self.limit)
        return x[:, -n:] + self.table(torch.arange(n))


class MultiplesOfFourteen(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, w = x.shape[-2:]
        if h % 14 != 0 or w % 14 != 0:
            x = x * 0.5
        return x


class Square(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu() if x.shape[-2] == x.shape[-1] else x


class LargeArea(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, w = x.shape[-2:]
        return x.relu() if h * w > 20_000 else x


class DeepInside(nn.Module):
    """The compared size is of a feature map, and eager takes multiples of 8 alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, c, h, w = x.shape
        tokens = x.view(b, c, h // 8, 8, w // 8, 8).amax((3, 5)).flatten(2)
        return tokens * 2 if tokens.shape[-1] >= 100 else tokens


class MaskGrows(nn.Module):
    mask: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(64, 64).tril(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        if n > self.mask.shape[0]:
            self.mask = torch.ones(n, n).tril()
        return self.mask[:n, :n] @ x


# (model, the example's shape, what is dynamic, whether sizes are on the other side, a shape that is)
CASES: list[tuple[type[nn.Module], tuple[int, ...], Any, Callable[[dict[str, int]], bool], tuple[int, ...]]] = [
    (TallIsHalved, (1, 3, 64, 48), IMAGE, lambda s: s["h"] > 512, (1, 3, 600, 48)),
    (CutAtLimit, (2, 16, 4), TEXT, lambda s: s["t"] > 512, (1, 600, 4)),
    (MultiplesOfFourteen, (1, 3, 30, 30), IMAGE, lambda s: s["h"] % 14 == 0 == s["w"] % 14, (2, 3, 28, 42)),
    (Square, (1, 3, 24, 32), IMAGE, lambda s: s["h"] == s["w"], (2, 3, 40, 40)),
    (LargeArea, (1, 3, 40, 30), IMAGE, lambda s: s["h"] * s["w"] > 20_000, (1, 3, 150, 160)),
    (DeepInside, (1, 3, 48, 32), IMAGE, lambda s: s["h"] * s["w"] >= 6400, (1, 3, 96, 80)),
    (MaskGrows, (1, 16, 8), TEXT, lambda s: s["t"] > 64, (2, 70, 8)),
]
