"""Python chooses by a number from an input, and no jump says so: min, max, look-ups, text, numpy, bools as numbers."""

from __future__ import annotations

import bisect
import itertools
import math

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.devious.kinds import devious, floats, planted, sizes

ROWS = ({0: "n"},)
IDS = torch.tensor([5, 9, 12, 3])
NUMBERS = torch.tensor([1.0, 2.0, 3.0, 4.0])


def told(*numbers: int) -> list[tuple[Tensor, Tensor]]:
    return [(torch.tensor(n), floats(4)) for n in numbers]


@devious(lambda: told(3, 150))
def at_least_a_hundred(n: Tensor, x: Tensor) -> Tensor:
    return x * max(int(n), 100)


@devious(lambda: told(3, 700))
def at_most_six_hundred(n: Tensor, x: Tensor) -> Tensor:
    k = min(int(n), 600)
    return x + k


@devious(lambda: told(3, 5000))
def among_the_sorted(n: Tensor, x: Tensor) -> Tensor:
    return x * sorted([int(n), 4321, 77])[1]


@devious(lambda: [(floats(4),), (torch.tensor([4.0, 2.0, 3.0, 1.0]),)])
def picked_by_a_bool(x: Tensor) -> Tensor:
    return [x, x * 7][bool(torch.equal(x.sort().values, NUMBERS))]


@devious(lambda: [(floats(4),), (torch.tensor([4.0, 2.0, 3.0, 1.0]),)])
def bool_as_a_number(x: Tensor) -> Tensor:
    return x * (1 + 3 * int(torch.equal(x.sort().values, NUMBERS)))


@devious(lambda: [(floats(6),), (torch.tensor([1.1, 1.2, 1.3, 1.4, 5.0, 0.0]),)])
def looked_up_by_a_bool(x: Tensor) -> Tensor:
    return x + {True: 4.0, False: 0.0}[bool(((x > 1) & (x < 2)).sum() == 4)]


@devious(lambda: [(floats(4, 3),), (floats(4, 3) + torch.tensor([60.0, 0.0, -60.0]),)])
def rows_by_filter(x: Tensor) -> Tensor:
    kept = list(filter(lambda row: bool(row[0] - row[2] > 100), x))
    return torch.stack(kept).sum(0) if len(kept) > 2 else x.sum(0)


@devious(lambda: [(IDS,), (torch.tensor([8, 8, 8, 1]),)])
def most_common(ids: Tensor) -> Tensor:
    return ids * (max(map(ids.tolist().count, ids.tolist())) == 3)


@devious(sizes(10, 12, 150, 190), ROWS)
def table_by_size(x: Tensor) -> Tensor:
    table = [1.0] * 100 + [2.0] * 100
    return x * table[x.shape[0]]


@devious(sizes(20, 21, 300), ROWS)
def digits_of_the_size(x: Tensor) -> Tensor:
    return x * len(str(x.shape[0]))


@devious(sizes(10, 11, 47), ROWS)
def sevens_in_the_size(x: Tensor) -> Tensor:
    return x * (1 + str(x.shape[0]).count("7"))


@devious(sizes(10, 11, 300), ROWS)
def padded_text(x: Tensor) -> Tensor:
    return x * (1 + int(f"{x.shape[0]:04d}"[1]))


@devious(sizes(10, 11, 2000), ROWS)
def bits_of_the_size(x: Tensor) -> Tensor:
    return x * max(10, x.shape[0].bit_length())


@devious(sizes(10, 11, 200), ROWS)
def bit_of_the_size(x: Tensor) -> Tensor:
    return x * (1 + (x.shape[0] >> 7))


@devious(sizes(10, 11, 512), ROWS)
def rounded_up_by_numpy(x: Tensor) -> Tensor:
    return x * int(np.ceil(x.shape[0] / 256))


@devious(sizes(10, 11, 700), ROWS)
def clipped_by_numpy(x: Tensor) -> Tensor:
    return x + float(np.clip(x.shape[0], 500, 1000))


@devious(sizes(10, 11, 800), ROWS)
def step_by_bisect(x: Tensor) -> Tensor:
    return x * (1.0, 2.0, 3.0)[bisect.bisect((64 * 8, 64 * 16), x.shape[0])]


@devious(sizes(10, 11, 300), ROWS)
def first_rows_alone(x: Tensor) -> Tensor:
    return torch.stack([row * 2 for row in itertools.islice(x, 256)]).sum(0)


@devious(sizes(10, 11, 300), ROWS)
def with_a_range(x: Tensor) -> Tensor:
    return sum((row * i for i, row in zip(range(16 * 16), x, strict=False)), torch.zeros(3))


class ByName(nn.Module):
    """A method for long inputs."""

    def short(self, x: Tensor) -> Tensor:
        return x

    def long(self, x: Tensor) -> Tensor:
        return x * 2

    def forward(self, x: Tensor) -> Tensor:
        return getattr(self, ["short", "long"][len(x) > 300])(x)


devious(sizes(10, 11, 301), ROWS)(ByName)


class NearestLength(nn.Module):
    """A scale by the nearest of some lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = {8: 1.0, 900: 3.0}

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scales[min(self.scales, key=lambda length: abs(length - x.shape[0]))]


devious(sizes(10, 11, 800), ROWS)(NearestLength)


@devious(lambda: [(floats(5),), (torch.tensor([9.0, 8.0, 7.0, 1.0, 2.0]),), (floats(5).flip(0),)])
def place_of_the_largest(x: Tensor) -> Tensor:
    numbers = x.tolist()
    return x * (1 + 4 * (numbers.index(max(numbers)) == 0 and numbers.index(min(numbers)) == 3))


@devious(sizes(10, 12, 144), ROWS)
def whole_square_root(x: Tensor) -> Tensor:
    return x * (1 + (math.isqrt(x.shape[0]) == 12))


@devious(lambda: [(floats(4), floats(4, seed=2)), (NUMBERS, NUMBERS * 2)])
def by_arithmetic(x: Tensor, y: Tensor) -> Tensor:
    same = torch.allclose(x * 2, y)
    return same * x + (not same) * y


@devious(lambda: [(IDS,), (torch.tensor([7, 9, 7, 9]),)])
def text_of_ids(ids: Tensor) -> Tensor:
    return ids * (1 + ",".join(map(str, ids.tolist())).startswith("7,9,7"))


@devious(lambda: [(floats(4),), (planted(floats(4), 1234.5, 2),)])
def digits_of_the_largest(x: Tensor) -> Tensor:
    return x * len(f"{x.abs().max().item():.0f}")
