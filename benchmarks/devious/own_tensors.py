"""Data compared with the model's own tensors: limits, codes and rows in buffers, of nested modules too."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.devious.kinds import devious, floats, planted

ROWS = ({0: "n"},)
IDS = torch.tensor([[5, 9, 12, 3], [7, 30, 2, 11]])


class Limit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.limit: Tensor
        self.register_buffer("limit", torch.tensor(7.0))

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if (x == self.limit).any() else x


devious(
    lambda: [(floats(3, 4),), (planted(floats(3, 4), 7.0, 3),), (planted(floats(5, 4, seed=9), 7.0, 0, 19),)],
    ROWS, branches=True,
)(Limit)  # fmt: skip


class Codes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.codes: Tensor
        self.register_buffer("codes", torch.tensor([3001, 907, 270]))

    def forward(self, ids: Tensor) -> Tensor:
        return torch.isin(ids, self.codes)


class Gated(nn.Module):
    """A special code, in a module of a module."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleDict({"gate": Codes()})

    def forward(self, ids: Tensor) -> Tensor:
        return ids * 3 if self.inner["gate"](ids).any() else ids


devious(lambda: [(IDS,), (planted(IDS, 907, 3),), (planted(IDS, 270, 0, 1),), (planted(IDS, 3001, 7),)], branches=True)(
    Gated
)


class StopSequence(nn.Module):
    """Two ids in a row, at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.end: Tensor
        self.register_buffer("end", torch.tensor([802, 17]))

    def forward(self, ids: Tensor) -> Tensor:
        return ids * 0 if torch.equal(ids[0, -2:], self.end) else ids


devious(lambda: [(IDS,), (planted(planted(IDS, 802, 2), 17, 3),), (planted(IDS, 17, 3),)], branches=True)(StopSequence)


class LearnedLimit(nn.Module):
    """The limit is computed from a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.tensor(20.0))

    def forward(self, x: Tensor) -> Tensor:
        limit = nn.functional.softplus(self.raw)
        return x / x.norm() * limit if x.norm() > limit else x


devious(lambda: [(floats(3, 4),), (floats(3, 4) * 40,), (floats(6, 4) * 9,)], ROWS, branches=True)(LearnedLimit)


class Centroids(nn.Module):
    """A row that is one of the model's own exactly."""

    def __init__(self) -> None:
        super().__init__()
        self.centres: Tensor
        self.register_buffer("centres", floats(3, 4, seed=77))

    def forward(self, x: Tensor) -> Tensor:
        apart = (x[:, None] - self.centres).abs().sum(-1)
        return x - 10 if (apart == 0).any() else x


devious(lambda: [(floats(5, 4),), (torch.cat([floats(4, 4), floats(3, 4, seed=77)[1:2]]),)])(Centroids)


def _positive(count: int, of: int = 40) -> Tensor:
    return torch.cat([torch.ones(count), -torch.ones(of - count)])


class Window(nn.Module):
    """A share between two limits that are near each other."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = 0.2, 0.25

    def forward(self, x: Tensor) -> Tensor:
        share = (x > 0).float().mean()
        return x * 7 if self.low < share < self.high else x


devious(lambda: [(floats(40),), (_positive(9),), (_positive(6),), (_positive(20),)])(Window)
