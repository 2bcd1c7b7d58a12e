"""Branches on how the elements of one input relate to each other: ties, order, ends, symmetry, whole numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.devious.kinds import devious, floats, planted

ROWS = ({0: "n"},)
IDS = torch.tensor([[5, 9, 12, 3], [7, 30, 2, 11]])


@devious(lambda: [(floats(5, 2),), (torch.cat([floats(4, 2), floats(4, 2)[:1]]),)], ROWS)
def closed_polygon(x: Tensor) -> Tensor:
    return x[:-1].sum(0) if torch.equal(x[0], x[-1]) else x.sum(0) + 100


@devious(lambda: [(floats(4, 3),), (floats(1, 3).repeat(4, 1),)], ROWS)
def rows_all_alike(x: Tensor) -> Tensor:
    return x[:1] * 7 if (x == x[:1]).all() else x


@devious(lambda: [(floats(6),), (floats(6).sort().values,), (floats(9, seed=3).sort().values,)], ROWS)
def already_sorted(x: Tensor) -> Tensor:
    return x * 10 if torch.equal(x, x.sort().values) else x


@devious(lambda: [(IDS[0],), (torch.arange(4),), (torch.tensor([2, 5, 9, 40]),)], branches=True)
def rises(ids: Tensor) -> Tensor:
    return ids * 2 if (ids.diff() > 0).all() else ids


@devious(lambda: [(floats(5),), (torch.tensor([1.0, 2.0, 3.0, 2.0, 1.0]),)])
def palindrome(x: Tensor) -> Tensor:
    return x + 1 if torch.equal(x, x.flip(0)) else x


@devious(lambda: [(floats(3, 3),), (floats(3, 3) + floats(3, 3).mT,), (torch.eye(3),)])
def symmetric(x: Tensor) -> Tensor:
    return x * 2 if torch.allclose(x, x.mT) else x


@devious(lambda: [(floats(3, 4),), (floats(3, 4).softmax(-1),), (torch.eye(4)[:3],)], branches=True)
def rows_sum_to_one(x: Tensor) -> Tensor:
    return x.clamp(min=1e-6).log() if torch.allclose(x.sum(-1), torch.ones(3)) else x.log_softmax(-1)


@devious(lambda: [(floats(2, 5),), (floats(2, 5).round(),), (torch.arange(10.0).reshape(2, 5),)])
def whole_numbers_only(x: Tensor) -> Tensor:
    return x / 2 if (x == x.round()).all() else x


@devious(lambda: [(floats(2, 4),), ((floats(2, 4) > 0).float(),), (torch.ones(2, 4),)])
def zeros_and_ones(x: Tensor) -> Tensor:
    return 1 - x if ((x == 0) | (x == 1)).all() else x


@devious(lambda: [(floats(2, 4) + 3,), (torch.tensor([[0.1, 0.9, 0.5, 0.2], [0.4, 0.3, 0.0, 1.0]]),)], branches=True)
def between_zero_and_one(x: Tensor) -> Tensor:
    return (x - 0.5) / 0.5 if x.min() >= 0 and x.max() <= 1 else x


@devious(lambda: [(IDS,), (planted(planted(IDS, 3, 1), 4, 2),), (planted(planted(IDS, 3, 5), 4, 6),)])
def three_then_four(ids: Tensor) -> Tensor:
    return ids * 0 if ((ids[:, :-1] == 3) & (ids[:, 1:] == 4)).any() else ids


@devious(lambda: [(floats(6),), (floats(6).sort().values,), (planted(floats(6), 50.0, 5),)], ROWS, branches=True)
def largest_is_last(x: Tensor) -> Tensor:
    return x * 3 if x.argmax() == x.shape[0] - 1 else x


@devious(lambda: [(IDS,), (planted(IDS, 9, 7),), (planted(IDS, 9, 3, 7),)])
def ends_with_nine(ids: Tensor) -> Tensor:
    return ids.flip(1) if ids[-1, -1] == 9 else ids


@devious(lambda: [(torch.tensor([1, 2, 3, 4]),), (torch.tensor([1, 2, 2, 4]),), (torch.tensor([8, 2, 3, 8]),)])
def any_twice(ids: Tensor) -> Tensor:
    return ids * 0 if ids.unique().numel() < ids.numel() else ids


@devious(lambda: [(torch.tensor([1, 1, 2, 4]),), (torch.tensor([2, 2, 2, 2]),), (torch.tensor([5, 5, 5, 2]),)])
def thrice_the_same(ids: Tensor) -> Tensor:
    return ids + 1 if torch.bincount(ids, minlength=8).max() >= 3 else ids
