"""Models whose exports go wrong in known ways, and right ones, for the tests of export and verify."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class NativeSize(nn.Module):
    """The trained-size shortcut: one formula at 32x32, another elsewhere; the graph keeps only one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.image_size = 32
        self.patch = nn.Conv2d(3, 4, 8, 8)
        self.pos_embed = nn.Parameter(torch.randn(1, 16, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        grid = self.patch(x)
        tokens = grid.flatten(2).transpose(1, 2)
        if grid.shape[-2] * grid.shape[-1] == 16:
            return tokens + self.pos_embed
        return tokens + self.pos_embed[:, :1] * 0.5


class FrozenScale(nn.Module):
    """A scale made of a size by float(): the exported grid keeps the example's size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        side = int(x.shape[-1] * 1.5)
        return F.interpolate(x, size=(side, side), mode="nearest")


class BatchBranch(nn.Module):
    """A Python branch on the batch size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 4:
            return x * 3
        return x * 2


class DataBranch(nn.Module):
    """A Python branch on the data."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.mean() > 0:
            return x * 2
        return x * 3


class Shrinks(nn.Module):
    """Remembers the smallest size that it has seen, as some window attentions do."""

    def __init__(self) -> None:
        super().__init__()
        self.window = 8
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(1)
        self.window = min(self.window, int(x.shape[0]))
        return x * self.window


class Right(nn.Module):
    """Right in both exporters at every size."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.adaptive_avg_pool2d(self.conv(x).relu(), 1).flatten(1)


class Nested(nn.Module):
    """Lists, dicts, a keyword and a None among the arguments."""

    def forward(
        self, x: torch.Tensor, pair: list[torch.Tensor], *, named: dict[str, torch.Tensor], mask: object = None
    ) -> dict[str, torch.Tensor]:
        total = x + pair[0] + pair[1] + named["k"]
        return {"total": total, "norm": total.norm(dim=-1)}
