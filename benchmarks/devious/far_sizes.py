"""Branches on sizes through arithmetic that hides the size: quotients, dicts, indices, powers of two, roots."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from benchmarks.devious.kinds import devious, floats, sizes

ROWS = ({0: "n"},)
IMAGE = ({2: "h", 3: "w"},)


def images(*pairs: tuple[int, int]) -> list[tuple[Tensor]]:
    return [(floats(1, 2, h, w, seed=h + w),) for h, w in pairs]


@devious(lambda: images((6, 8), (20, 8), (6, 30), (17, 8), (40, 9)), IMAGE)
def tall(x: Tensor) -> Tensor:
    return x.mean(3) if x.shape[2] / x.shape[3] > 2 else x.sum(3)


@devious(lambda: images((6, 8), (8, 6), (12, 12), (3, 40)), IMAGE)
def landscape(x: Tensor) -> Tensor:
    return x.mT.sum(2) if x.shape[2] > x.shape[3] else x.sum(2)


@devious(sizes(10, 65, 64, 200, 3), ROWS)
def half_beyond_32(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] / 2 > 32 else x


@devious(sizes(6, 8, 16, 1, 7, 64, 33), ROWS)
def power_of_two(x: Tensor) -> Tensor:
    n = x.shape[0]
    return x.flip(0) if n & (n - 1) == 0 else x


@devious(sizes(6, 9, 16, 25, 1, 15), ROWS)
def whole_root(x: Tensor) -> Tensor:
    side = int(math.sqrt(x.shape[0]))
    return x * 2 if side * side == x.shape[0] else x


@devious(sizes(6, 12, 24, 5), ROWS)
def size_in_a_dict(x: Tensor) -> Tensor:
    return x * {12: 3.0, 24: 5.0}.get(x.shape[0], 1.0)


@devious(sizes(6, 7, 8, 9, 31), ROWS)
def picked_by_rest(x: Tensor) -> Tensor:
    return [torch.sin, torch.cos, torch.tanh][x.shape[0] % 3](x)


@devious(sizes(10, 129, 128, 300), ROWS)
def by_len(x: Tensor) -> Tensor:
    return x[-128:].sum(0) if len(x) > 128 else x.sum(0) * 2


@devious(sizes(10, 600, 513, 512, 2), ROWS)
def beyond_512(x: Tensor) -> Tensor:
    return x / x.shape[0] if int(x.shape[0]) > 512 else x


@devious(sizes(10, 400, 334, 333, 5), ROWS)
def thousand_elements(x: Tensor) -> Tensor:
    return x.abs() if math.prod(x.shape) > 1000 else x


@devious(lambda: [(floats(n, 2, seed=n), floats(m, 2, seed=m)) for n, m in ((4, 6), (6, 4), (8, 4), (5, 5), (12, 6))],
         ({0: "n"}, {0: "m"}))  # fmt: skip
def twice_the_other(x: Tensor, y: Tensor) -> Tensor:
    return x.sum(0) - y.sum(0) if x.shape[0] == 2 * y.shape[0] else x.sum(0) + y.sum(0)


@devious(lambda: [(floats(n, 2, seed=n), floats(m, 2, seed=m)) for n, m in ((4, 6), (6, 4), (3, 3), (1, 9))],
         ({0: "n"}, {0: "m"}))  # fmt: skip
def the_longer_one(x: Tensor, y: Tensor) -> Tensor:
    return max(x, y, key=len).sum(0)


@devious(sizes(9, 2, 3, 4, 30), ROWS)
def fourth_from_the_end(x: Tensor) -> Tensor:
    return x[max(x.shape[0] - 4, 0)] + x[: x.shape[0] - 3].sum(0)


@devious(sizes(9, 3, 4, 1, 30), ROWS)
def every_quarter(x: Tensor) -> Tensor:
    return x[:: max(1, x.shape[0] // 4)].sum(0)


@devious(sizes(9, 5, 8, 2, 40), ROWS)
def tail_beyond_eight(x: Tensor) -> Tensor:
    return x[8:].logsumexp(0) + x[8:].prod(0)


@devious(sizes(10, 70, 64, 65, 128, 4), ROWS)
def blocks_of_64(x: Tensor) -> Tensor:
    blocks = math.ceil(x.shape[0] / 64)
    return x * blocks


@devious(sizes(10, 1000, 100, 99, 9, 1), ROWS)
def by_digits(x: Tensor) -> Tensor:
    return x + len(str(x.shape[0]))
