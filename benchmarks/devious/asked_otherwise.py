"""NaN and infinity asked for in other words, or by several at once: comparisons with themselves, counts, limits."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.devious.kinds import devious, floats, planted

NAN, INF = float("nan"), float("inf")
ROWS = ({0: "n"},)


@devious(lambda: [(floats(6),), (planted(floats(6), NAN, 1),)], branches=True)
def unlike_itself(x: Tensor) -> Tensor:
    return x.nan_to_num(1.0) * 2 if (x != x).any() else x


@devious(lambda: [(floats(6),), (planted(floats(6), NAN, 1, 5),)])
def healed_by_itself(x: Tensor) -> Tensor:
    return torch.where(x == x, x, torch.zeros_like(x)).clamp(-1, 1)


@devious(lambda: [(floats(6),), (planted(floats(6), INF, 1),), (planted(floats(6), -INF, 0),)], branches=True)
def equal_to_infinity(x: Tensor) -> Tensor:
    return x.clamp(max=9) if (x == INF).any() else x


@devious(lambda: [(floats(6),), (planted(floats(6), NAN, 1, 2, 5),), (planted(floats(6), NAN, 1),)])
def three_nan(x: Tensor) -> Tensor:
    return torch.ones(6) if x.isnan().sum() > 2 else x.nan_to_num(0.0)


@devious(lambda: [(floats(2, 3),), (torch.full((2, 3), -INF),), (planted(floats(2, 3), -INF, 0, 1, 2),)])
def a_row_of_infinities(x: Tensor) -> Tensor:
    return x.softmax(1).nan_to_num(0.5) if x.isinf().all(1).any() else x


@devious(lambda: [(floats(6),), (floats(6) * 1e38,)])
def overflows_by_itself(x: Tensor) -> Tensor:
    y = (x * 100).sum()
    return x * 0 + 1 if y.abs() == INF or y != y else x + y


@devious(lambda: [(floats(6).abs(),), (floats(6),)])
def largest_root(x: Tensor) -> Tensor:
    return x.sqrt().amax() + x.sqrt().clamp(min=0.1)


@devious(lambda: [(floats(6).abs(),), (floats(6),)])
def rectified_logarithm(x: Tensor) -> Tensor:
    return torch.relu(x.log()) + torch.maximum(x.log(), torch.zeros(6))


@devious(lambda: [(floats(2, 6).sigmoid(),), (floats(2, 6) * 2,)])
def largest_angle(x: Tensor) -> Tensor:
    return torch.nn.functional.max_pool1d(x.acos(), 2) + torch.nn.functional.leaky_relu(x.asin()).amax()


@devious(lambda: [(floats(2, 3).abs() + 0.1, floats(2, 3).abs() + 0.1), (floats(2, 3).abs(), torch.zeros(2, 3)),
                  (torch.zeros(2, 3), torch.zeros(2, 3))])  # fmt: skip
def likeness_of_nothing(x: Tensor, y: Tensor) -> Tensor:
    return torch.nn.functional.cosine_similarity(x, y) + torch.nn.functional.normalize(y).sum(1)


@devious(lambda: [(floats(3, 4),), (floats(3, 4) * 1e15,), (floats(3, 4) * 1e-42,)])
def tiny_and_huge(x: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, (4,)) + x.softmax(1) + x.logsumexp(1, keepdim=True).clamp(max=9)


@devious(lambda: [(floats(4, 3),), (floats(1, 3),), (floats(2, 3),)], ROWS)
def spread_of_one(x: Tensor) -> Tensor:
    return ((x - x.mean(0)) / x.std(0)).nan_to_num(7.0)


@devious(lambda: [(floats(6), torch.tensor(1.0)), (floats(6), torch.tensor(0.0)), (floats(6), torch.tensor(-0.0))])
def divided_by_a_told_zero(x: Tensor, by: Tensor) -> Tensor:
    return torch.atan(x / by) + torch.tanh(x.abs() / by)
