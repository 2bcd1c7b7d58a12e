"""Sizes in Python's own arithmetic and statements: divmod, gcd, tuples compared, match, while, slices of layers."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from benchmarks.devious.kinds import Args, devious, floats, sizes

ROWS, PLANE = ({0: "n"},), ({2: "h", 3: "w"},)


def images(*pairs: tuple[int, int]) -> list[Args]:
    return [(floats(1, 2, h, w, seed=h * 100 + w),) for h, w in pairs]


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config = {"limit": 33.5}

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] / 2 + 0.5 > self.config["limit"] else x


devious(sizes(10, 66, 67, 68, 200), ROWS)(Nested)


@devious(sizes(9, 17, 18, 16, 40), ROWS)
def third_of_the_square(x: Tensor) -> Tensor:
    n = x.shape[0]
    return x + 1 if n * n // 3 >= 100 else x


@devious(lambda: images((10, 12), (24, 24), (25, 24), (5, 200), (12, 48)), PLANE)
def root_of_the_area(x: Tensor) -> Tensor:
    return x * 2 if math.sqrt(x.shape[2] * x.shape[3]) > 24 else x


@devious(lambda: images((10, 12), (12, 10), (11, 11), (7, 7), (12, 6), (6, 12)), PLANE)
def sides(x: Tensor) -> Tensor:
    h, w = x.shape[-2:]
    if h == w:
        return x.mT.contiguous()
    if h > w:
        return x + 1
    return x - 1 if w == 2 * h else x


@devious(lambda: images((10, 12), (12, 10), (8, 9), (9, 8), (8, 8), (3, 70)), PLANE)
def shorter_side_first(x: Tensor) -> Tensor:
    h, w = sorted(x.shape[-2:])
    return x.flatten(2)[..., : h * 2] * w


@devious(sizes(10, 17, 24, 80, 81, 87), ROWS)
def in_a_range(x: Tensor) -> Tensor:
    return -x if x.shape[0] in range(10, 90, 7) else x


@devious(sizes(10, 11, 9, 23, 12, 6), ROWS)
def quotient_and_rest(x: Tensor) -> Tensor:
    blocks, rest = divmod(x.shape[0], 6)
    return x[: blocks + 1] * (rest + 1)


@devious(sizes(10, 9, 12, 18, 7), ROWS)
def common_divisor(x: Tensor) -> Tensor:
    return x * math.gcd(x.shape[0], 12)


@devious(sizes(10, 15, 16, 31, 32, 127), ROWS)
def bits(x: Tensor) -> Tensor:
    return x * x.shape[0].bit_length()


@devious(sizes(10, 49, 98, 103, 107, 3), ROWS)
def steps_of_one_nth(x: Tensor) -> Tensor:
    return x.sum() + torch.arange(0, 1, 1 / x.shape[0])


@devious(sizes(10, 3, 6, 9, 12, 30, 33), ROWS)
def steps_of_three_tenths(x: Tensor) -> Tensor:
    return x.sum() + torch.arange(0, x.shape[0], 0.3)


@devious(sizes(10, 5, 7, 9, 25), ROWS)
def half_to_even(x: Tensor) -> Tensor:
    return x[: round(x.shape[0] / 2)] + (-x.shape[0] // 3) + int(-x.shape[0] / 3)


@devious(sizes(10, 1, 2, 31, 45, 44), ROWS)
def matched(x: Tensor) -> Tensor:
    match tuple(x.shape):
        case (1, _):
            return x * 0
        case (n, 3) if n > 44:
            return x[:5]
        case _:
            return x


@devious(sizes(8, 12, 5, 2, 30), ROWS)
def tuples_compared(x: Tensor) -> Tensor:
    return x * 2 if tuple(x.shape) > (11, 0) else x


class Deeper(nn.Module):
    """As many layers as the length has quarters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[: x.shape[0] // 4]:
            x = layer(x).tanh()
        return x


devious(sizes(10, 12, 3, 24, 40), ROWS)(Deeper)


@devious(lambda: [(floats(a, 3), floats(b, 3, seed=2)) for a, b in ((5, 5), (5, 1), (1, 6), (1, 1))],
         ({0: "a"}, {0: "b"}))  # fmt: skip
def one_row_against_many(x: Tensor, y: Tensor) -> Tensor:
    return x * y


@devious(lambda: [(floats(a, 3), floats(b, 3, seed=2)) for a, b in ((5, 4), (4, 5), (6, 6))], ({0: "a"}, {0: "b"}))
def longer_first(x: Tensor, y: Tensor) -> Tensor:
    x, y = (x, y) if len(x) >= len(y) else (y, x)
    return torch.cat([x, -y])


@devious(sizes(16, 8, 4, 2, 32, 31), ROWS)
def halved_until_one(x: Tensor) -> Tensor:
    while x.shape[0] > 1:
        half = x.shape[0] // 2
        x = x[:half] + x[half : 2 * half]
    return x


@devious(sizes(10, 11, 13, 8, 3), ROWS)
def primes(x: Tensor) -> Tensor:
    n = x.shape[0]
    return x * 2 if all(n % k for k in range(2, n)) else x


class TriedFirst(nn.Module):
    """A view that some lengths refuse."""

    def forward(self, x: Tensor) -> Tensor:
        try:
            return x.view(-1, 4).sum(1)
        except RuntimeError:
            return x.sum()[None]


devious(lambda: [(floats(8),), (floats(9),), (floats(12),), (floats(3),)], ROWS)(TriedFirst)
