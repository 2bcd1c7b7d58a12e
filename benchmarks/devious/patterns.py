"""Patterns in one input: places of the largest, runs, products, counts in a range, two conditions at once."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.devious.kinds import devious, floats, planted

IDS = torch.tensor([5, 9, 12, 3, 7, 30])


@devious(lambda: [(floats(6),), (planted(floats(6), 50.0, 4),), (planted(floats(6), 50.0, 2),)], branches=True)
def largest_is_the_fifth(x: Tensor) -> Tensor:
    return x * 2 if x.argmax() == 4 else x


@devious(lambda: [(torch.tensor([1, 2, 5]),), (torch.tensor([2, 2, 3]),), (torch.tensor([7, 0, 0]),)], branches=True)
def three_times_is_21(ids: Tensor) -> Tensor:
    return ids * 2 if (ids * 3).sum() == 21 else ids


@devious(lambda: [(IDS,), (torch.tensor([5, 8, 8, 8, 7, 30]),), (torch.tensor([8, 8, 3, 8, 8, 1]),)])
def three_in_a_row(ids: Tensor) -> Tensor:
    return ids * 0 if ((ids[2:] == ids[1:-1]) & (ids[1:-1] == ids[:-2])).any() else ids


@devious(lambda: [(IDS,), (torch.tensor([4, 4, 2, 2, 9, 9]),), (torch.tensor([4, 4, 2, 2, 2, 2]),)])
def three_kinds(ids: Tensor) -> Tensor:
    return ids * 2 if ids.unique().numel() == 3 else ids


@devious(
    lambda: [
        (floats(6),),
        (torch.tensor([1.1, 1.5, 1.7, 1.9, 0.0, 5.0]),),
        (torch.tensor([1.1, 2.5, 1.7, 1.9, 0.0, 5.0]),),
    ]
)
def four_between(x: Tensor) -> Tensor:
    return x.flip(0) if ((x > 1) & (x < 2)).sum() >= 4 else x


@devious(
    lambda: [(floats(6),), (planted(planted(floats(6), 8.0, 0), -8.0, 5),), (planted(floats(6), 8.0, 0),)],
    branches=True,
)
def up_here_and_down_there(x: Tensor) -> Tensor:
    if x[0] > 5:
        if x[-1] < -5:
            return x * 2
        return x + 1
    return x


@devious(lambda: [(floats(6),), (torch.full((6,), 3.0),), (torch.full((6,), 3.01),)])
def near_three_everywhere(x: Tensor) -> Tensor:
    return x * 9 if ((x - 3) ** 2).sum() < 0.01 else x


@devious(lambda: [(IDS,), (torch.tensor([3, 3, 3, 1, 2, 3]),), (torch.tensor([4, 4, 4, 1, 2, 3]),)])
def three_is_the_commonest(ids: Tensor) -> Tensor:
    return ids + 1 if ids.bincount().argmax() == 3 else ids


@devious(lambda: [(floats(3, 4),), (torch.tensor([[1.0] * 4, [-1.0] * 4, [2.0] * 4]),), (floats(3, 4).abs(),)])
def two_rows_above(x: Tensor) -> Tensor:
    return x * 2 if (x.sum(1) > 0).sum() == 2 else x


@devious(lambda: [(IDS,), (torch.tensor([9, 4, 12, 3, 7, 30]),), (torch.tensor([4, 9, 12, 3, 7, 30]),)])
def five_apart(ids: Tensor) -> Tensor:
    return ids * 2 if ids[0] - ids[1] == 5 else ids


@devious(lambda: [(IDS,), (torch.tensor([5, 6, 8, 7, 5, 6]),), (torch.tensor([1, 1, 1, 1, 1, 1]),)])
def within_three(ids: Tensor) -> Tensor:
    return ids * 2 if ids.max() - ids.min() == 3 else ids


@devious(lambda: [(IDS,), (torch.tensor([0, 9, 0, 3, 0, 30]),), (torch.tensor([0, 9, 0, 3, 1, 30]),)])
def zeros_at_every_other(ids: Tensor) -> Tensor:
    return ids * 2 if (ids[::2] == 0).all() else ids


@devious(lambda: [(IDS,), (torch.tensor([4, 9, 12, 3, 7, 30]),), (torch.tensor([4, 5, 12, 3, 7, 30]),)])
def four_without_five(ids: Tensor) -> Tensor:
    return ids * 2 if (ids == 4).any() and not (ids == 5).any() else ids


@devious(lambda: [(floats(6),), (torch.tensor([-1.0, 2, 3, 4, -1, -2]),), (torch.tensor([1.0, -2, 3, 4, -1, 2]),)])
def a_run_of_three(x: Tensor) -> Tensor:
    return x * 2 if F.avg_pool1d((x > 0).float()[None], 3, 1).max() == 1 else x


@devious(lambda: [(floats(3, 3),), (torch.tensor([[1.0, 2, 3], [2, 4, 6], [0, 1, 5]]),), (torch.eye(3),)])
def singular(x: Tensor) -> Tensor:
    return x.sum(0) if torch.linalg.det(x).abs() < 1e-4 else x.mean(0)


@devious(lambda: [(IDS,), (torch.tensor([6, 9, 12, 3, 7, 30]),), (torch.tensor([5, 9, 12, 3, 7, 20]),)])
def divisible_total(ids: Tensor) -> Tensor:
    return ids * 2 if ids.sum() % 7 == 4 else ids


@devious(
    lambda: [(torch.tensor([[1, 2], [3, 4]]),), (torch.tensor([[1, 2], [2, 4]]),), (torch.tensor([[7, 2], [2, 7]]),)]
)
def off_diagonal_alike(ids: Tensor) -> Tensor:
    return ids * 2 if ids[0, 1] == ids[1, 0] else ids


@devious(lambda: [(floats(6),), (planted(floats(6), 100.0, 0, 2, 4, 5),), (planted(floats(6), 100.0, 0),)])
def middle_beyond_ten(x: Tensor) -> Tensor:
    return x * 2 if x.median() > 10 else x


@devious(lambda: [(floats(2, 5),), (torch.ones(2, 5).cumsum(1),), (torch.ones(2, 5).cumsum(1) * -2,)])
def evenly_spaced(x: Tensor) -> Tensor:
    return x.sum(1) if torch.allclose(x.diff(n=2), torch.zeros(())) else x.mean(1)


@devious(lambda: [(torch.tensor([[0.2, 0.3, 0.5]]),), (torch.tensor([[0.96, 0.02, 0.02]]),),
                  (torch.tensor([[0.4, 0.4, 0.2]]),)],
         branches=True)  # fmt: skip
def sure_of_the_first(p: Tensor) -> Tensor:
    best = p.max(-1)
    return p * 0 + 1 if best.values[0] > 0.95 and best.indices[0] == 0 else p
