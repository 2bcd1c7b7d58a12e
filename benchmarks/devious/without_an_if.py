"""Decisions without an `if`: what is looked up, sorted, chosen or counted by a size or by data, in Python."""

from __future__ import annotations

import bisect
import functools
import heapq
import itertools
import operator
import types
from collections import Counter, defaultdict
from enum import IntEnum

import torch
from torch import Tensor, nn

from benchmarks.devious.kinds import devious, floats, planted, sizes

ROWS = ({0: "n"},)
IDS = torch.tensor([5, 9, 12, 3])


@devious(sizes(10, 51, 50, 120), ROWS)
def times_whether_it_is_long(x: Tensor) -> Tensor:
    return x + (x.shape[0] > 50)


@devious(sizes(10, 90, 91, 200), ROWS)
def function_at_a_flag(x: Tensor) -> Tensor:
    return (torch.sin, torch.cos)[x.shape[0] > 90](x)


@devious(sizes(10, 80, 79, 160), ROWS)
def function_of_a_flag(x: Tensor) -> Tensor:
    return {True: torch.exp, False: torch.tanh}[x.shape[0] >= 80](x)


@devious(sizes(10, 33, 65, 129), ROWS)
def place_among_limits(x: Tensor) -> Tensor:
    return x * (1, 2, 4, 8)[bisect.bisect((32, 64, 128), x.shape[0])]


@devious(sizes(10, 70, 71, 140), ROWS)
def hundreds(x: Tensor) -> Tensor:
    return x * (x.shape[0] // 100 + 1)


@devious(sizes(10, 99, 100, 1000), ROWS)
def number_of_digits(x: Tensor) -> Tensor:
    return x * len(str(x.shape[0]))


@devious(sizes(10, 45, 44, 90), ROWS)
def least_of_the_size(x: Tensor) -> Tensor:
    return x[: min(x.shape[0], 44)] * 2


@devious(sizes(10, 61, 60, 130), ROWS)
def counted_limits(x: Tensor) -> Tensor:
    return x * sum(x.shape[0] > limit for limit in (20, 60, 100))


@devious(lambda: [(floats(4, 3),), (floats(4, 3) * 5,), (floats(4, 3).flip(0),)])
def sorted_by_the_sum(x: Tensor) -> Tensor:
    return torch.stack(sorted(x, key=lambda row: float(row.sum())))


@devious(lambda: [(floats(4, 3),), (floats(4, 3).flip(0),)])
def row_of_the_largest_sum(x: Tensor) -> Tensor:
    return max(x, key=lambda row: float(row.sum())) * 2


@devious(lambda: [(IDS,), (torch.tensor([7, 7, 7, 3]),)])
def most_frequent(ids: Tensor) -> Tensor:
    return ids * Counter(ids.tolist()).most_common(1)[0][1]


@devious(lambda: [(IDS,), (torch.tensor([5, 9, 77, 3]),)])
def default_of_a_table(ids: Tensor) -> Tensor:
    table = defaultdict(lambda: 1.0, {77: 3.0})
    return ids * table[int(ids[2])]


@devious(lambda: [(IDS,), (torch.tensor([5, 5, 5, 3]),)])
def distinct_in_python(ids: Tensor) -> Tensor:
    return ids * len(set(ids.tolist()))


@devious(lambda: [(IDS,), (torch.tensor([5, 5, 9, 9]),)])
def runs_of_equal_ones(ids: Tensor) -> Tensor:
    return ids * len(list(itertools.groupby(ids.tolist())))


@devious(lambda: [(floats(5),), (floats(5).flip(0),), (floats(5) * 3,)])
def second_largest_in_python(x: Tensor) -> Tensor:
    return x - heapq.nlargest(2, x.tolist())[1]


@devious(lambda: [(IDS,), (torch.tensor([3, 12, 9, 5]),)])
def where_the_three_stands(ids: Tensor) -> Tensor:
    return ids * (ids.tolist().index(3) + 1)


@devious(lambda: [(floats(5),), (planted(floats(5), 6.0, 2),)])
def counted_in_python(x: Tensor) -> Tensor:
    return x * (1 + sum(value > 5 for value in x.tolist()))


@devious(lambda: [(floats(5),), (planted(floats(5), 8.0, 2),)])
def clamped_in_python(x: Tensor) -> Tensor:
    return x / max(float(x.abs().max()), 6.0)


@devious(lambda: [(floats(5),), (floats(5) - 9,)])
def filtered(x: Tensor) -> Tensor:
    return x * len(list(filter(lambda value: value < -7, x.tolist())))


@devious(lambda: [(floats(6),), (floats(6) + 5,)])
def folded(x: Tensor) -> Tensor:
    return x + functools.reduce(operator.and_, (value > 0 for value in x.tolist()))


class Kind(IntEnum):
    SHORT, LONG = 0, 1


@devious(sizes(10, 75, 74, 150), ROWS)
def member_of_an_enumeration(x: Tensor) -> Tensor:
    return x * (Kind(x.shape[0] > 74).value + 1)


@devious(sizes(10, 88, 87, 180), ROWS)
def named_by_its_size(x: Tensor) -> Tensor:
    ways = types.SimpleNamespace(long=torch.sinh, short=torch.sin)
    return getattr(ways, "short" * (x.shape[0] < 88) or "long")(x)


@devious(sizes(10, 55, 110, 23), ROWS)
def rest_of_eleven(x: Tensor) -> Tensor:
    return x * (1, *(0,) * 10)[x.shape[0] % 11] + 1


class Experts(nn.Module):
    """The layer that a whole number of the input names."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(4))

    def forward(self, x: Tensor, which: Tensor) -> Tensor:
        return self.layers[int(which)](x)


devious(lambda: [(floats(2, 3), torch.tensor(k)) for k in (1, 3, 0)])(Experts)


@devious(lambda: [(IDS,), (torch.tensor([5, 9, 12, 300]),), (torch.tensor([70000, 9, 12, 3]),)])
def bits_of_the_largest(ids: Tensor) -> Tensor:
    return ids * int(ids.max()).bit_length()
