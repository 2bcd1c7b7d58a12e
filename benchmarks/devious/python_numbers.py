"""Numbers from the data on which Python decides by itself: rounded, formatted, looked for in lists, asked of math."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from benchmarks.devious.kinds import devious, floats, planted

IDS = torch.tensor([5, 9, 12, 3])


@devious(lambda: [(floats(5),), (torch.full((5,), 2.5),), (torch.tensor([2.0, 3.0, 2.5, 1.5, 3.5]),)])
def mean_near_a_number(x: Tensor) -> Tensor:
    return x * 3 if abs(x.mean().item() - 2.5) < 0.01 else x


@devious(lambda: [(floats(5),), (torch.tensor([0.0, 1.0, 0.5, 0.52, 0.48]),)])
def rounded_to_a_tenth(x: Tensor) -> Tensor:
    return x * 3 if round(x.mean().item(), 1) == 0.5 else x


@devious(lambda: [(floats(5),), (planted(floats(5).clamp(max=0), 3.7, 2),)])
def floor_of_the_largest(x: Tensor) -> Tensor:
    return x - 9 if math.floor(x.max().item()) == 3 else x


@devious(
    lambda: [(floats(5),), (torch.tensor([7.0, 0.5, -0.25, 0.0, 0.0]),), (torch.tensor([1.0, 4.0, 6.0, 0.1, 0.0]),)]
)
def whole_part_of_the_sum(x: Tensor) -> Tensor:
    return x.flip(0) if int(x.sum()) in (7, 11) else x


@devious(lambda: [(floats(5),), (torch.tensor([30.0, 1.0, 0.0, 2.0, 1.0]),)])
def tens_of_the_sum(x: Tensor) -> Tensor:
    return x / 10 if x.sum().item() // 10 == 3 else x


@devious(lambda: [(floats(5),), (planted(floats(5), 4.54, 1),)])
def as_text(x: Tensor) -> Tensor:
    return x * 5 if f"{x.max().item():.1f}" == "4.5" else x


@devious(lambda: [(floats(5),), (torch.full((5,), 3.0),), (torch.tensor([11.0, 1.0, 1.0, 1.0, 1.0]),)])
def close_in_python(x: Tensor) -> Tensor:
    return x.cumsum(0) if math.isclose(x.sum().item(), 15.0) else x


@devious(lambda: [(floats(5),), (planted(floats(5), math.nan, 2),)])
def asked_of_math(x: Tensor) -> Tensor:
    return torch.zeros(5) if math.isnan(x.sum().item()) else x


@devious(lambda: [(floats(5),), (planted(floats(5), math.nan, 2),), (planted(floats(5), math.inf, 4),)])
def finite_by_numpy(x: Tensor) -> Tensor:
    return x if np.isfinite(x.numpy()).all() else torch.ones(5)


@devious(lambda: [(floats(5),), (planted(floats(5), 30.0, 3),), (planted(floats(5), 30.0, 1),)])
def place_by_numpy(x: Tensor) -> Tensor:
    return x * 2 if x.numpy().argmax() == 3 else x


@devious(lambda: [(IDS,), (torch.tensor([7, 8, 9, 10]),), (torch.tensor([7, 8, 9, 11]),)])
def this_list(ids: Tensor) -> Tensor:
    return ids * 0 if ids.tolist() == [7, 8, 9, 10] else ids


@devious(lambda: [(IDS,), (planted(IDS, 321, 1),), (planted(IDS, 654, 3),)])
def any_among(ids: Tensor) -> Tensor:
    return ids + 1 if any(one in (321, 654) for one in ids.tolist()) else ids


@devious(lambda: [(IDS,), (planted(IDS, 20, 0),), (planted(IDS, 20, 3),)])
def first_place_of(ids: Tensor) -> Tensor:
    place = next((i for i, one in enumerate(ids.tolist()) if one == 20), None)
    return ids if place is None else ids[place:]


@devious(lambda: [(IDS,), (torch.full((4,), 6),), (torch.tensor([1, 2, 1, 2]),)])
def kinds_in_a_set(ids: Tensor) -> Tensor:
    return ids * len(set(ids.tolist()))


@devious(lambda: [(IDS,), (torch.tensor([31, 32, 1, 2]),), (torch.tensor([32, 31, 1, 2]),)])
def pair_in_a_dict(ids: Tensor) -> Tensor:
    return ids * {(31, 32): 3, (32, 31): 5}.get((int(ids[0]), int(ids[1])), 1)


@devious(lambda: [(floats(4),), (torch.tensor([8.0, 6.0, 1.0, 2.0]),), (torch.tensor([1.0, 6.0, 8.0, 2.0]),)])
def two_numbers_at_once(x: Tensor) -> Tensor:
    first, last = x[0].item(), x[-1].item()
    if first > 5:
        y = x * 7
        if last > 1.5:
            return y
    return x


@devious(lambda: [(floats(6),), (floats(6) * 40,), (floats(6) * 900,), (torch.zeros(6),)], branches=True)
def halved_until_small(x: Tensor) -> Tensor:
    while x.abs().max() > 2:
        x = x / 2
    return x


@devious(lambda: [(torch.tensor(n), floats(3)) for n in (3, 1, 6, 0, 9)], branches=True)
def rounds_told(n: Tensor, x: Tensor) -> Tensor:
    k = int(n)
    while k > 0:
        x, k = x * 1.5 + 1, k - 2
    return x


@devious(lambda: [(floats(4),), (planted(floats(4), -20.0, 0),), (planted(floats(4), 20.0, 0),), (torch.zeros(4),)],
         branches=True)  # fmt: skip
def returns_early(x: Tensor) -> Tensor:
    if x.sum() < -10:
        return x.abs()
    if x.sum() > 10:
        return x.sqrt().nan_to_num()
    if not x.any():
        return x + 1
    return x * 2


@devious(lambda: [(floats(4, 3),), (floats(4, 3).abs(),), (-floats(4, 3).abs(),), (floats(4, 3, seed=3),)])
def rows_kept_in_a_list(x: Tensor) -> Tensor:
    kept = [row for row in x if row.sum() > 0]
    return torch.stack(kept).mean(0) if kept else torch.zeros(3)


@devious(lambda: [(floats(6),), (torch.tensor([9.0, 8.0, 1.0, 0.0, 2.0, 3.0]),), (floats(6, seed=5),)])
def two_largest_first(x: Tensor) -> Tensor:
    return x * 2 if sorted(x.topk(2).indices.tolist()) == [0, 1] else x


@devious(
    lambda: [(torch.tensor([3, 4]), floats(3)), (torch.tensor([2, 8]), floats(3)), (torch.tensor([40, 7]), floats(3))]
)
def last_digit(ids: Tensor, x: Tensor) -> Tensor:
    return -x if str(int(ids.sum()))[-1] == "0" else x if int(ids.max()) < 40 else x * 2
