"""Choices that no `if` of the forward makes: loops that do not begin, properties, errors that a block swallows."""

from __future__ import annotations

import bisect
import collections
import contextlib
import dataclasses
import functools
import heapq
import itertools
import operator

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.devious.kinds import devious, floats, planted, sizes

ROWS = ({0: "n"},)
IDS = torch.tensor([5, 8, 2, 4])
WORDS = ["one", "two", "three", "four"]
LIMITS = (45, 450)
SHARES = [1.0 + 0.5 * (i % 3) for i in range(90)]
BY_ROWS = collections.defaultdict(lambda: 1.0, {177: 2.0})


@dataclasses.dataclass(frozen=True)
class Plan:
    rows: int
    most: int = 140

    @property
    def is_long(self) -> bool:
        return self.rows > self.most

    def __bool__(self) -> bool:
        return self.rows % 19 == 0


class Share(dict):  # type: ignore[type-arg]
    def __missing__(self, rows: int) -> float:
        return 3.0 if rows > 210 else 1.0


@functools.lru_cache(maxsize=8)
def kept_factor(rows: int) -> float:
    return 2.0 if rows > 333 else 1.0


@devious(sizes(4, 150, 9), ROWS)
def by_a_property(x: Tensor) -> Tensor:
    return x * 2 if Plan(x.shape[0]).is_long else x


@devious(sizes(4, 19, 38), ROWS)
def by_its_truth(x: Tensor) -> Tensor:
    return x * 2 if Plan(x.shape[0]) else x


@devious(sizes(4, 177, 9), ROWS)
def default_of_a_table(x: Tensor) -> Tensor:
    return x * BY_ROWS[x.shape[0]]


@devious(sizes(4, 230, 9), ROWS)
def missing_in_a_table(x: Tensor) -> Tensor:
    return x * Share()[x.shape[0]]


@devious(sizes(4, 340, 9), ROWS)
def kept_by_a_cache(x: Tensor) -> Tensor:
    return x * kept_factor(x.shape[0])


@devious(sizes(4, 39, 26), ROWS)
def named_in_a_condition(x: Tensor) -> Tensor:
    return x * m if (n := x.shape[0]) % 13 == 0 and (m := n // 13) > 2 else x


@devious(sizes(4, 70, 130), ROWS)
def first_that_fits(x: Tensor) -> Tensor:
    return x * next((k for k in (120, 60, 20) if x.shape[0] >= k), 1)


@devious(sizes(4, 95, 89), ROWS)
def beyond_a_list(x: Tensor) -> Tensor:
    try:
        return x * SHARES[x.shape[0]]
    except IndexError:
        return x - 1


@devious(sizes(4, 95, 91), ROWS)
def swallowed_error(x: Tensor) -> Tensor:
    with contextlib.suppress(IndexError):
        x = x + (SHARES[x.shape[0]] > 0)
    return x


@devious(sizes(4, 85, 100), ROWS)
def loop_that_does_not_begin(x: Tensor) -> Tensor:
    for _ in range(20 * len(WORDS), x.shape[0]):
        x = x + 1
    return x


@devious(sizes(4, 85, 100), ROWS)
def truth_of_a_range(x: Tensor) -> Tensor:
    return x * 2 if range(20 * len(WORDS), x.shape[0]) else x


@devious(sizes(4, 85, 100), ROWS)
def how_many_beyond(x: Tensor) -> Tensor:
    return x + sum(1 for _ in range(20 * len(WORDS), x.shape[0]))


@devious(lambda: [(IDS,), (planted(IDS, 99, 2),), (planted(IDS, 99, 0),)], None)
def until_a_stop(ids: Tensor) -> Tensor:
    kept = 0
    for one in ids.tolist():
        if one == 99:
            break
        kept += 1
    return ids * kept


@devious(lambda: [(IDS,), (planted(IDS, 70, 0),), (planted(IDS, 90, 0),)], None)
def matched_id(ids: Tensor) -> Tensor:
    match int(ids[0]):
        case 70 | 90:
            return ids * 2
        case _:
            return ids


@devious(sizes(4, 46, 451), ROWS)
def place_among_limits(x: Tensor) -> Tensor:
    return x * bisect.bisect(LIMITS, x.shape[0])


@devious(sizes(4, 46, 451), ROWS)
def limits_below(x: Tensor) -> Tensor:
    return x + len(list(itertools.takewhile(lambda k: k < x.shape[0], LIMITS)))


@devious(sizes(4, 47, 31), ROWS)
def member_of_a_set(x: Tensor) -> Tensor:
    return x * (1 if {31, 47}.isdisjoint({x.shape[0]}) else 2)


@devious(sizes(4, 47, 25), ROWS)
def quotient_and_rest(x: Tensor) -> Tensor:
    quotient, rest = divmod(x.shape[0], 11)
    return x * (quotient if rest == 3 else 1)


@devious(sizes(5, 8, 64), ROWS)
def power_of_two_by_bits(x: Tensor) -> Tensor:
    return x * (2 - bool(x.shape[0] & (x.shape[0] - 1)))


@devious(sizes(5, 32, 40, 64), ROWS)
def sixth_bit(x: Tensor) -> Tensor:
    return x * (1 + ((x.shape[0] >> 5) & 1))


@devious(lambda: [(torch.ones(6),), (torch.tensor([1.0, 1, 1, 0, 0, 0]),)], None)
def three_are_set(mask: Tensor) -> Tensor:
    return mask * 2 if torch.is_nonzero(mask.sum() - 3) else mask + 5


@devious(sizes(4, 24, 30), ROWS)
def in_the_shape(x: Tensor) -> Tensor:
    return x * 2 if 24 in x.shape else x


@devious(sizes(4, 130, 300), ROWS)
class ByName(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.small, self.large = nn.Identity(), nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        layer: Tensor = getattr(self, ("small", "large")[x.shape[0] // 128 > 0])(x)
        return layer


@devious(lambda: [(floats(4, 3),), (planted(floats(4, 3), 9.0, 0),)], ROWS)
class ByTheData(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Identity(), nn.Tanh()])

    def forward(self, x: Tensor) -> Tensor:
        return self.layers[int(x.max() > 8)](x)  # type: ignore[no-any-return]


@devious(sizes(4, 41, 50), ROWS)
def one_of_two_functions(x: Tensor) -> Tensor:
    return {True: torch.tanh, False: torch.relu}[operator.gt(x.shape[0], 40)](x)


@devious(sizes(4, 41, 50), ROWS)
def larger_by_a_heap(x: Tensor) -> Tensor:
    return x + heapq.nlargest(1, [x.shape[0], 40])[0]


@devious(sizes(4, 41, 50), ROWS)
def any_beyond(x: Tensor) -> Tensor:
    return x * 2 if any(map((40).__lt__, x.shape)) else x


@devious(sizes(4, 46, 451), ROWS)
def searched_by_numpy(x: Tensor) -> Tensor:
    return x + int(np.searchsorted(LIMITS, x.shape[0]))


@devious(sizes(4, 41, 50), ROWS)
def folded(x: Tensor) -> Tensor:
    return x * functools.reduce(lambda a, b: a if a > b else b, (40, x.shape[0]))


@devious(sizes(4, 18, 34), ROWS)
def largest_rest(x: Tensor) -> Tensor:
    return x + max(x.shape, key=lambda size: size % 17)


@devious(sizes(4, 85, 100), ROWS)
def end_of_a_slice(x: Tensor) -> Tensor:
    return x + slice(0, x.shape[0]).indices(20 * len(WORDS))[1] - x.shape[0]


@devious(sizes(4, 85, 100), ROWS)
def counted_in_a_range(x: Tensor) -> Tensor:
    return x + range(x.shape[0]).count(20 * len(WORDS))


@devious(sizes(4, 80, 100), ROWS)
def counted_in_the_shape(x: Tensor) -> Tensor:
    return x + tuple(x.shape).count(20 * len(WORDS))


@devious(sizes(4, 85, 100), ROWS)
def found_in_a_bytearray(x: Tensor) -> Tensor:
    return x + bytearray(x.shape[0]).find(b"\0", 20 * len(WORDS))


@devious(sizes(4, 85, 100), ROWS)
def last_of_a_deque(x: Tensor) -> Tensor:
    return x + collections.deque(range(x.shape[0]), maxlen=20 * len(WORDS))[0]


@devious(sizes(4, 85, 100), ROWS)
def left_by_islice(x: Tensor) -> Tensor:
    rest = itertools.islice(range(x.shape[0]), 20 * len(WORDS), None)
    return x + next(rest, 0)


@devious(sizes(4, 85, 100), ROWS)
def popped_from_a_list(x: Tensor) -> Tensor:
    rows = list(range(x.shape[0]))
    del rows[: 20 * len(WORDS)]
    return x + (rows.pop() if rows else 0)


@devious(lambda: [(IDS, floats(4)), (planted(IDS, 5, 3), floats(4))])
def rows_by_id(ids: Tensor, x: Tensor) -> Tensor:
    last = {one: place for place, one in enumerate(ids.tolist())}
    return x * last[int(ids[0])]


@devious(lambda: [(IDS, floats(4)), (torch.tensor([2, 8, 5, 4]), floats(4))])
def order_by_a_key(ids: Tensor, x: Tensor) -> Tensor:
    return x[sorted(range(4), key=ids.tolist().__getitem__)]


@devious(sizes(4, 85, 100), ROWS)
def sent_to_a_generator(x: Tensor) -> Tensor:
    def counts(most: int):  # type: ignore[no-untyped-def]
        rows = yield 0
        yield max(rows - most, 0)

    made = counts(20 * len(WORDS))
    next(made)
    return x + made.send(x.shape[0])
