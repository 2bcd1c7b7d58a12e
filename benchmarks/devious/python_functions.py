"""Functions of Python between a number from an input and the answer, of which the example shows one value alone."""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
import math
import operator
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.devious.kinds import devious, floats, sizes

ROWS = ({0: "n"},)
IDS = torch.tensor([5, 9, 12, 3])


def told(*numbers: int) -> list[tuple[Tensor, Tensor]]:
    return [(torch.tensor(n), floats(4)) for n in numbers]


@devious(sizes(4, 97, 194), ROWS)
def common_divisor(x: Tensor) -> Tensor:
    return x * math.gcd(x.shape[0], 97)


@devious(sizes(4, 512, 1030), ROWS)
def shifted_right(x: Tensor) -> Tensor:
    return x * (1 + (x.shape[0] >> 9))


@devious(sizes(4, 256, 300), ROWS)
def one_bit(x: Tensor) -> Tensor:
    return x + (x.shape[0] & 256)


@devious(lambda: told(3, 1200))
def thousands_of_a_number(n: Tensor, x: Tensor) -> Tensor:
    return x * (1 + int(n) // 1000)


@devious(lambda: told(3, 700))
def power_modulo(n: Tensor, x: Tensor) -> Tensor:
    return x * (1 + pow(int(n) // 600, 2, 7))


@devious(lambda: told(3, 5000, 90_000))
def number_of_digits(n: Tensor, x: Tensor) -> Tensor:
    return x * int(math.log10(int(n) + 1000))


@devious(sizes(4, 90, 110), ROWS)
def sum_of_hundreds(x: Tensor) -> Tensor:
    return x + sum(map(int, f"{x.shape[0]:05d}"[:3]))


@devious(lambda: [(IDS, floats(4)), (torch.tensor([900, 1, 2, 3]), floats(4))])
def largest_by_heap(ids: Tensor, x: Tensor) -> Tensor:
    return x * (1 + heapq.nlargest(1, ids.tolist())[0] // 500)


@devious(lambda: [(IDS, floats(4)), (torch.tensor([5, 900, 12, 3]), floats(4))])
def taken_while_small(ids: Tensor, x: Tensor) -> Tensor:
    return x * len(list(itertools.takewhile(lambda one: one < 777, ids.tolist())))


@devious(lambda: [(IDS, floats(4)), (torch.tensor([5, 901, 12, 3]), floats(4))])
def common_elements(ids: Tensor, x: Tensor) -> Tensor:
    return x + len(set(ids.tolist()) & {901, 902})


@devious(lambda: [(IDS, floats(4)), (torch.tensor([5, 801, 12, 3]), floats(4))])
def any_by_map(ids: Tensor, x: Tensor) -> Tensor:
    return x * (1 + any(map(functools.partial(operator.lt, 800), ids.tolist())))


@dataclasses.dataclass(order=True)
class Step:
    length: int

    def __contains__(self, other: int) -> bool:
        return other >= self.length


@devious(sizes(4, 140, 400), ROWS)
def member_by_a_method(x: Tensor) -> Tensor:
    return x * (1 + (x.shape[0] in Step(131)))


@devious(sizes(4, 300), ROWS)
def ordered_objects(x: Tensor) -> Tensor:
    return x + max(Step(x.shape[0]), Step(211)).length


@devious(sizes(4, 260), ROWS)
def steps_of_a_slice(x: Tensor) -> Tensor:
    return x + slice(0, 255).indices(x.shape[0])[1] // 255


class Recursive(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return self.halved(x, x.shape[0])

    def halved(self, x: Tensor, n: int) -> Tensor:
        return x if n < 150 else self.halved(x * 2, n // 150)


devious(sizes(4, 151), ROWS)(Recursive)


class Lazy(nn.Module):
    """A property and a generator decide."""

    longest = 170

    @property
    def limit(self) -> int:
        return self.longest + 5

    def forward(self, x: Tensor) -> Tensor:
        for factor in self.factors(x.shape[0]):
            x = x * factor
        return x

    def factors(self, n: int) -> Any:
        yield 2.0
        if not n <= self.limit:
            yield 3.0


devious(sizes(4, 176, 500), ROWS)(Lazy)


@devious(lambda: [(floats(4, 3), floats(4, 3)), (floats(4, 3) * 0.01 + 9, floats(4, 3))])
def two_at_once(x: Tensor, y: Tensor) -> Tensor:
    return x * 3 if x.std() < 0.1 and x.mean() > 5 else x + y


@devious(lambda: [(floats(4),), (torch.tensor([0.0, 0.0, 0.0, 9.0]),)])
def place_of_the_largest(x: Tensor) -> Tensor:
    return x * (5 if x.argmax() == 3 and x.max() > 8 else 1)


@devious(lambda: told(3, 2001))
def rounded_to_thousands(n: Tensor, x: Tensor) -> Tensor:
    return x * (1 + round(int(n), -3))


@devious(sizes(4, 365), ROWS)
def two_lengths_of_a_range(x: Tensor) -> Tensor:
    return x * len(range(0, x.shape[0], 360))
