"""Parts on (batch, length, WIDTH) as people write them: one that is sound, the others each with one fault."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 8


class Sound(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.proj(x))


class Branch(Sound):
    def forward(self, x: Tensor) -> Tensor:
        y = self.proj(x)
        if x.sum() > 0:
            y = y * 2
        return y


class BranchOnSize(Sound):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] > 7:
            return self.proj(x) * 3
        return self.proj(x)


class RootOfLength(Sound):
    def forward(self, x: Tensor) -> Tensor:
        k = int(x.shape[1] ** 0.5)
        return self.proj(x) + x[:, :k].mean(1, keepdim=True)


class ScaleByLength(Sound):
    def forward(self, x: Tensor) -> Tensor:
        scale = math.sqrt(x.shape[1])
        return self.proj(x) / float(scale)


class Rows(Sound):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.proj(row) for row in x])


class Steps(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        h = x[:, 0] * 0
        seen = []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            seen.append(h)
        return torch.stack(seen, 1)


class Item(Sound):
    def forward(self, x: Tensor) -> Tensor:
        top = x.abs().max().item()
        return self.proj(x) / (top + 1.0)


class Rebuilt(Sound):
    def forward(self, x: Tensor) -> Tensor:
        bounds = torch.tensor([float(x.min()), float(x.max())])
        return self.proj(x) * bounds.sum()


class Table(Sound):
    """A lazily built table, kept at the size of the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.table: Any = None

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None or self.table.shape[0] != x.shape[1]:
            self.table = torch.arange(x.shape[1]).unsqueeze(1).float() / 10
        return self.proj(x) + self.table


class Spectrum(Sound):
    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x) + torch.fft.fft(x, dim=-1).abs()


class Values(Sound):
    def forward(self, x: Tensor) -> Tensor:
        s = torch.linalg.svdvals(x)
        return self.proj(x) * s[..., :1, None]


class Ranked(Sound):
    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x) + torch.kthvalue(x, 2, dim=-1, keepdim=True).values


class Selected(Sound):
    def forward(self, x: Tensor) -> Tensor:
        kept = x[x[..., 0] > 0]
        if kept.shape[0] > 2:
            return self.proj(x) + kept.mean(0)
        return self.proj(x)


class Pooled(Sound):
    def forward(self, x: Tensor) -> Tensor:
        pooled = F.adaptive_avg_pool1d(x.transpose(1, 2), 3)
        return self.proj(x) + pooled.mean(-1)[:, None]


class Repeated(Sound):
    """`int()` of a tensor's value decides a size."""

    def forward(self, x: Tensor) -> Tensor:
        n = int((x[0, 0] > 0).sum())
        return self.proj(x) + x[:, : n + 1].sum(1, keepdim=True)


class MeanScatter(Sound):
    """scatter_reduce's mean counts the target too where include_self is left at True; converters differ."""

    def forward(self, x: Tensor) -> Tensor:
        index = (torch.arange(WIDTH, device=x.device) // 2).expand_as(x)
        return self.proj(x) + torch.zeros_like(x).scatter_reduce(-1, index, x, reduce="mean", include_self=False)


class Guarded(Sound):
    """Asserts that warn under a trace and do no harm; only the branch does."""

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[-1] == WIDTH
        assert torch.isfinite(x).all()
        if x.mean() < 0:
            x = -x
        return self.proj(x)


class Padded(Sound):
    """Windows of four, padded in Python."""

    def forward(self, x: Tensor) -> Tensor:
        pad = (4 - x.shape[1] % 4) % 4
        if pad > 0:
            x = F.pad(x, (0, 0, 0, pad))
        windows = x.reshape(x.shape[0], x.shape[1] // 4, 4, WIDTH)
        return self.proj(windows.mean(2))
