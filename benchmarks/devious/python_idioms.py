"""Idioms of Python that ask sizes and data: match, enums, for-else, groupby, divmod, caches, errors that are caught."""

from __future__ import annotations

import bisect
import collections
import enum
import fractions
import functools
import itertools
import math
import operator
import statistics
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.devious.kinds import devious, floats, planted, sizes

ROWS = ({0: "n"},)
IDS = torch.tensor([5, 9, 12, 3])


class Length(enum.Enum):
    SHORT = 0
    MEDIUM = 1
    LONG = 2


FACTORS = {Length.SHORT: 1.0, Length.MEDIUM: 3.0, Length.LONG: 5.0}


@devious(sizes(4, 33, 70), ROWS)
def enum_of_the_length(x: Tensor) -> Tensor:
    return x * FACTORS[Length(min(x.shape[0] // 30, 2))]


@devious(sizes(4, 14, 21), ROWS)
def matched_shape(x: Tensor) -> Tensor:
    match tuple(x.shape):
        case (n, 3) if n % 7 == 0:
            return x * 2
        case _:
            return x


@devious(sizes(4, 5, 17), ROWS)
def rows_of_a_filter(x: Tensor) -> Tensor:
    return x + len([i for i in range(x.shape[0]) if i % 5 == 4])


@devious(sizes(4, 40, 200), ROWS)
def digits_of_the_length(x: Tensor) -> Tensor:
    return x * len(str(x.shape[0]))


@devious(sizes(4, 6, 9), ROWS)
def function_by_shape(x: Tensor) -> Tensor:
    return {(6, 3): torch.neg, (9, 3): torch.abs}.get(tuple(x.shape), torch.clone)(x)


@devious(sizes(4, 9, 30), ROWS)
def root_by_numpy(x: Tensor) -> Tensor:
    return x * int(np.sqrt(x.shape[0]))


@functools.lru_cache
def _weight(n: int) -> float:
    return 1.0 if n < 50 else 3.0


@devious(sizes(4, 64), ROWS)
def weight_from_a_cache(x: Tensor) -> Tensor:
    return x * _weight(x.shape[0])


class KeptByLength(nn.Module):
    tables: dict[int, float] = {}

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        return x * self.tables.setdefault(n, 2.0 if n > 30 else 1.0)


devious(sizes(4, 45), ROWS)(KeptByLength)


@devious(lambda: [(floats(6, 3),), (floats(6, 3, seed=8).abs(),), (-floats(6, 3, seed=9).abs(),)])
def sorted_then_cut(x: Tensor) -> Tensor:
    sums = x.sum(1)
    return x[sums.argsort(descending=True)[: int((sums > 0).sum())]].sum(0)


@devious(lambda: [(floats(4, 3),), (floats(4, 3) * 1000,), (floats(4, 3) * 0.01,)])
def halved_until_small(x: Tensor) -> Tensor:
    while x.norm() > 1:
        x = x / 2
    return x


@devious(sizes(4, 10, 25), ROWS)
def tenth_or_last(x: Tensor) -> Tensor:
    try:
        return x + x[9]
    except IndexError:
        return x + x[-1]


def _short(n: int) -> int:
    if n > 50:
        raise ValueError(n)
    return 1


@devious(sizes(4, 77), ROWS)
def error_caught(x: Tensor) -> Tensor:
    try:
        factor = _short(x.shape[0])
    except ValueError:
        factor = 4
    return x * factor


@devious(lambda: [(floats(6, 3),), (floats(3, 3).repeat(2, 1),)])
def halves_alike(x: Tensor) -> Tensor:
    return x * 3 if torch.allclose(x[:3], x[3:], atol=1e-4) else x


@devious(sizes(4, 12, 25), ROWS)
def one_of_some_lengths(x: Tensor) -> Tensor:
    return -x if x.shape[0] in [12, 25, 130] else x


@devious(lambda: [(floats(5, 3),), (planted(floats(5, 3), 4.0, 0, 3, 6, 9),)])
def named_on_the_way(x: Tensor) -> Tensor:
    return x * k if (k := int((x > 3).sum())) > 3 else x


@devious(lambda: [(floats(4, 3), floats(6, 3)), (floats(5, 3), floats(5, 3))], ({0: "n"}, {0: "m"}))
def set_of_lengths(x: Tensor, y: Tensor) -> Tensor:
    return x.sum(0) + (y.sum(0) if len({x.shape[0], y.shape[0]}) == 1 else 0)


@devious(lambda: [(floats(4, 3),), (floats(4, 3) + 7,), (floats(4, 3) - 20,)])
def grade_of_the_mean(x: Tensor) -> Tensor:
    return x * bisect.bisect([-10.0, 1.5, 6.0], x.mean().item())


@devious(sizes(4, 8, 19), ROWS)
def quotient_and_rest(x: Tensor) -> Tensor:
    whole, rest = divmod(x.shape[0], 8)
    return x * (whole + 1) if rest else -x


@devious(sizes(4, 5, 33), ROWS)
def padded_to_a_power(x: Tensor) -> Tensor:
    n = x.shape[0]
    return nn.functional.pad(x, (0, 0, 0, 2 ** math.ceil(math.log2(n)) - n))


@devious(lambda: [(IDS, floats(4)), (torch.tensor([5, 90, 12, 77]), floats(4))])
def counted_one_by_one(ids: Tensor, x: Tensor) -> Tensor:
    for one in ids.tolist():
        if one > 50:
            x = x + 1
    return x


@devious(lambda: [(IDS, floats(4)), (torch.tensor([5, 42, 12, 3]), floats(4))])
def unless_one_is_there(ids: Tensor, x: Tensor) -> Tensor:
    for one in ids.tolist():
        if one == 42:
            break
    else:
        x = x * 2
    return x


@devious(lambda: [(IDS, floats(4)), (torch.tensor([5, 5, 3, 3]), floats(4))])
def runs_of_ids(ids: Tensor, x: Tensor) -> Tensor:
    return x * len(list(itertools.groupby(ids.tolist())))


@devious(lambda: [(IDS, floats(4)), (torch.tensor([7, 7, 7, 3]), floats(4))])
def most_common(ids: Tensor, x: Tensor) -> Tensor:
    return x * collections.Counter(ids.tolist()).most_common(1)[0][1]


@devious(sizes(4, 7, 20), ROWS)
def last_five(x: Tensor) -> Tensor:
    return torch.stack(list(collections.deque(x, maxlen=5))).sum(0)


@devious(sizes(4, 6, 9), ROWS)
def one_of_three(x: Tensor) -> Any:
    return operator.itemgetter(x.shape[0] % 3)((torch.neg, torch.abs, torch.exp))(x)


@devious(sizes(4, 5, 12), ROWS)
def reduced_fraction(x: Tensor) -> Tensor:
    return x * fractions.Fraction(x.shape[0], 12).denominator


@devious(lambda: [(floats(5, 3),), (floats(5, 3) + 4,)])
def median_by_python(x: Tensor) -> Tensor:
    return x * 2 if statistics.median(x[:, 0].tolist()) > 2 else x


@devious(sizes(4, 9, 3), ROWS)
def zipped_with_a_range(x: Tensor) -> Tensor:
    return torch.stack([row * k for row, k in zip(x, range(6), strict=False)]).sum(0)


@devious(sizes(4, 8, 12, 13), ROWS)
def power_by_bits(x: Tensor) -> Tensor:
    n = x.shape[0]
    return x + bin(n).count("1") + (0 if n & (n - 1) else 1)


@devious(lambda: [(floats(6, 3),), (floats(6, 3) * 0 + 1,)])
def largest_by_reduce(x: Tensor) -> Tensor:
    return x + functools.reduce(lambda a, b: a if a > b else b, x[:, 0].tolist())
