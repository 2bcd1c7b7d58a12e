"""Right graphs with all their branches, whose conditions sit where rounding decides: none may be called wrong."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.devious.kinds import Args, devious, floats

ROWS = ({0: "n"},)


def many() -> list[Args]:
    x = floats(5, 3)
    return [(x,), (floats(7, 3).abs(),), (-floats(2, 3).abs(),), (x[:4] * 9,), (x[:4] / 9,)]


def whole() -> list[Args]:
    return [(torch.tensor(row),) for row in ([5, 9, 12, 3], [1, 2, 1, 1], [40, 2, 0, 3])]


@devious(many, ROWS, branches=True)
def mean_above_three_tenths(x: Tensor) -> Tensor:
    return x * 2 if x.mean() > 0.3 else x - 1


@devious(many, ROWS, branches=True)
def product_of_an_item(x: Tensor) -> Tensor:
    return x * 2 if x.sum().item() * 0.7 > 3.5 else x - 1


@devious(many, ROWS, branches=True)
def item_below_a_tenth(x: Tensor) -> Tensor:
    return x * 2 if x[0, 0].item() < 0.1 else x - 1


@devious(lambda: [*many(), (floats(3, 3) * 1e-3 + 0.1,)], ROWS, branches=True)
def near_a_tenth(x: Tensor) -> Tensor:
    return x * 2 if abs(x.mean().item() - 0.1) < 0.05 else x - 1


@devious(many, ROWS, branches=True)
def norm_above_two(x: Tensor) -> Tensor:
    return x / x.norm() if x.norm() > 2.0 else x


@devious(many, ROWS, branches=True)
def sure_softmax(x: Tensor) -> Tensor:
    return x * 2 if x.softmax(1).amax() > 0.9 else x - 1


@devious(many, ROWS, branches=True)
def spread_below_one(x: Tensor) -> Tensor:
    return x * 2 if x.std() < 1.0 else x - 1


@devious(many, ROWS, branches=True)
def share_above_six_tenths(x: Tensor) -> Tensor:
    return x * 2 if (x > 0.2).float().mean() > 0.6 else x - 1


@devious(many, ROWS, branches=True)
def whole_part_above_three(x: Tensor) -> Tensor:
    return x * 2 if int(x.max()) > 3 else x - 1


@devious(many, ROWS, branches=True)
def several_limits(x: Tensor) -> Tensor:
    y = x.abs().mean().item()
    if y > 1.7:
        return x / 2
    return x * 3 if y < 0.45 else x


@devious(whole, ROWS, branches=True)
def total_of_ids(ids: Tensor) -> Tensor:
    return ids * 2 if ids.sum() > 29 else ids + 1


@devious(whole, ROWS, branches=True)
def mean_of_ids(ids: Tensor) -> Tensor:
    return ids * 2 if ids.float().mean().item() >= 7.25 else ids + 1


@devious(whole, ROWS, branches=True)
def first_against_last(ids: Tensor) -> Tensor:
    return ids * 2 if ids[0].item() - ids[-1].item() > 2 else ids + 1


@devious(many, ROWS, branches=True)
def rows_against_each_other(x: Tensor) -> Tensor:
    return x * 2 if torch.dist(x[0], x[-1]) > 1.3 else x - 1


@devious(many, ROWS, branches=True)
def angle_between_rows(x: Tensor) -> Tensor:
    return x * 2 if torch.cosine_similarity(x[0], x[-1], dim=0) > 0.5 else x - 1
