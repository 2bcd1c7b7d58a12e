"""Answers that float32 or torch itself does not determine: a graph that differs there is no worse than eager."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.devious.kinds import devious, floats

ROWS = ({0: "n"},)


def squares() -> list[tuple[Tensor, Tensor]]:
    """Pairs of four points, some of them nearly on one line."""
    made = []
    for n, nearly in ((3, 1.0), (4, 1e-3), (2, 1e-4)):
        a, b = floats(n, 4, 2, seed=n), floats(n, 4, 2, seed=n + 50)
        a[:, 3] = a[:, 2] + (a[:, 2] - a[:, 1]) * (1 + nearly) + nearly * a[:, 0]
        made.append((a, b))
    return made


@devious(squares, ({0: "n"}, {0: "n"}))
def homography(a: Tensor, b: Tensor) -> Tensor:
    x, y, u, v = a[..., 0], a[..., 1], b[..., 0], b[..., 1]
    one, zero = torch.ones_like(x), torch.zeros_like(x)
    upper = torch.stack([x, y, one, zero, zero, zero, -u * x, -u * y], -1)
    lower = torch.stack([zero, zero, zero, x, y, one, -v * x, -v * y], -1)
    left = torch.cat([upper, lower], 1)
    gram = left.mT @ left
    right = (left.mT @ torch.cat([u, v], 1)[..., None])[..., 0]
    rows = []  # Gauss without pivots, which float32 does not determine where the points are nearly on one line
    for i in range(8):
        factor = gram[:, i:, i] / gram[:, i : i + 1, i]
        rows.append((gram[:, i, i:], right[:, i]))
        gram = gram - torch.cat([torch.zeros_like(gram[:, :i, 0]), factor], 1)[..., None] * gram[:, i : i + 1] * (
            torch.arange(8)[None, :, None] > i
        )
        right = right - torch.cat([torch.zeros_like(right[:, :i]), factor], 1) * right[:, i : i + 1] * (
            torch.arange(8)[None] > i
        )
    found: list[Tensor] = []
    for row, value in reversed(rows):
        told = value - sum((row[:, k + 1] * one for k, one in enumerate(found)), torch.zeros(()))
        found.insert(0, told / row[:, 0])
    return torch.stack(found, 1)


@devious(lambda: [(floats(5, 3),), (floats(5, 3) * 1e4 + 1e7,), (floats(9, 3) * 100 + 1e6,)], ROWS)
def spread_far_from_zero(x: Tensor) -> Tensor:
    return (x * x).mean(0) - x.mean(0) ** 2


@devious(lambda: [(floats(6, 40),), (floats(6, 40).round(),), (floats(300, 40).round(),)], ROWS)
def order_of_equal_numbers(x: Tensor) -> Tensor:
    return x.sort(dim=1, stable=False).indices


@devious(lambda: [(floats(6, 40),), (floats(6, 40).round(),), (floats(300, 40).round(),)], ROWS)
def sorted_values(x: Tensor) -> Tensor:
    return x.sort(dim=1, stable=False).values


@devious(lambda: [(floats(6, 40),), (floats(6, 40).round(),)], ROWS)
def largest_of_equal_numbers(x: Tensor) -> Tensor:
    return x.topk(5, dim=1).indices


@devious(lambda: [(floats(6, 40),), (floats(6, 40).round(),)], ROWS)
def order_of_ranks(x: Tensor) -> Tensor:
    return torch.argsort(x, dim=1)


@devious(lambda: [(floats(4),), (floats(4) * 1e5,), (floats(4) * 1e8,)], ROWS)
def sine_of_large_numbers(x: Tensor) -> Tensor:
    return (x * 1e3).sin()
