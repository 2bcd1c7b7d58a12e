"""Answers that hang on the last digit: nearly equal largest ones, long sums, tiny numbers, rounded halves."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.devious.kinds import devious, floats

ROWS = ({0: "n"},)


class Chooses(nn.Module):
    """The largest of numbers that a layer computes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        with torch.no_grad():
            self.layer.weight[32:] = self.layer.weight[:32] * (1 + 1e-8)
            self.layer.bias[32:] = self.layer.bias[:32]

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).argmax(1)


devious(lambda: [(floats(4, 64),), (floats(40, 64, seed=2),), (floats(300, 64, seed=3),)], ROWS)(Chooses)


@devious(lambda: [(floats(4, 64),), (floats(40, 64, seed=2),), (floats(90, 64, seed=3) * 1e3,)], ROWS)
def nearest_pair(x: Tensor) -> Tensor:
    return (x[:, None] - x).square().sum(-1).fill_diagonal_(1e9).argmin(1)


@devious(lambda: [(floats(4, 1000),), (floats(4, 30000),), (floats(4, 200000),)], ({1: "n"},))
def long_sums(x: Tensor) -> tuple[Tensor, ...]:
    return x.sum(1), (x + 100).sum(1), (x + 1e4).mean(1), x.cumsum(1)[:, -1], (x**2).sum(1)


@devious(lambda: [(floats(4, 64),), (floats(4, 64) * 1e-39,), (floats(4, 64) * 1e-44,)])
def tiny(x: Tensor) -> Tensor:
    return x * 2 + F.normalize(x) + x / (x.abs().sum() + 1e-40)


@devious(lambda: [(floats(4, 64),), ((floats(4, 64) * 10).round() / 20,)])
def rounded_products(x: Tensor) -> Tensor:
    return (x @ x.mT * 2).round()


@devious(lambda: [(floats(4, 64),), (floats(60, 64),), (floats(60, 64).round(),)], ROWS)
def ranks(x: Tensor) -> Tensor:
    return x.mean(1).argsort().argsort()


@devious(lambda: [(floats(4, 64),), (floats(60, 64),), (floats(60, 64, seed=9) * 1e-6 + 1,)], ROWS)
def whitened(x: Tensor) -> Tensor:
    return (x - x.mean(0)) / (x.var(0, correction=0) + 1e-12).sqrt()


@devious(lambda: [(floats(4, 6, 6),), (torch.ones(3, 6, 6) + floats(3, 6, 6) * 1e-6,)], ROWS)
def inverse_of_nearly_nothing(x: Tensor) -> Tensor:
    return torch.linalg.inv(x + 1e-6 * torch.eye(6))


@devious(lambda: [(floats(4, 6),), (floats(40, 6, seed=4),)], ROWS)
def threshold_on_a_sum(x: Tensor) -> Tensor:
    return (x.softmax(1).sum(1) >= 1).float()


@devious(lambda: [(floats(4, 6),), (floats(40, 6, seed=4) * 1e4,), (floats(40, 6, seed=4) * 1e6,)], ROWS)
def phases(x: Tensor) -> Tensor:
    return torch.sin(x) + torch.cos(x * 10) + x.tan().clamp(-5, 5)


@devious(lambda: [(floats(9, 6),), (floats(40, 6, seed=4),)], ROWS)
def directions(x: Tensor) -> Tensor:
    return torch.linalg.svd(x.mT @ x).U


@devious(
    lambda: [(floats(2, 3, 8, 8),), (floats(2, 3, 16, 16).round(),), (torch.zeros(1, 3, 8, 8),)],
    ({0: "b", 2: "h", 3: "w"},),
)
def places_of_pooled(x: Tensor) -> tuple[Tensor, Tensor]:
    values, places = F.max_pool2d(x, 2, return_indices=True)
    return values, places


@devious(lambda: [(floats(2, 40),), (floats(2, 40) * 1e3,), (floats(2, 40, seed=5),)])
def cut_of_the_likely(x: Tensor) -> Tensor:
    values, places = x.softmax(1).sort(descending=True)
    kept = values.cumsum(1) - values <= 0.9
    return torch.zeros_like(x).scatter(1, places, (values * kept))
