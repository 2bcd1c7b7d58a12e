"""Sizes in Python's arithmetic of whole numbers and of math: bits, powers, negative quotients, roots, lists."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.devious.kinds import devious, floats, sizes

ROWS = ({0: "n"},)
SOME = sizes(10, 1, 2, 3, 4, 7, 8, 9, 16, 17, 31, 33, 64)


@devious(SOME, ROWS)
def padded_to_a_power(x: Tensor) -> Tensor:
    return F.pad(x, (0, 0, 0, (1 << (x.shape[0] - 1).bit_length()) - x.shape[0]))


@devious(SOME, ROWS)
def power_by_logarithm(x: Tensor) -> Tensor:
    return x * 2 ** math.ceil(math.log2(x.shape[0]))


@devious(SOME, ROWS)
def root_by_power(x: Tensor) -> Tensor:
    side = int(x.shape[0] ** 0.5)
    return x[: side * side].reshape(side, side, 3).mT.sum(0)


@devious(SOME, ROWS)
def whole_root(x: Tensor) -> Tensor:
    return x[: math.isqrt(x.shape[0])] * (x.shape[0] ** -0.5)


@devious(SOME, ROWS)
def cube_root(x: Tensor) -> Tensor:
    return x[: round(x.shape[0] ** (1 / 3))]


@devious(SOME, ROWS)
def negative_quotients(x: Tensor) -> Tensor:
    n = x.shape[0]
    return x + (5 - n) // 3 + (2 - n) % 4 + n // -4 + n % -3


@devious(SOME, ROWS)
def bits_of_the_size(x: Tensor) -> Tensor:
    n = x.shape[0]
    return x * (n & 5) + (n | 1) - (n ^ 3) + (n >> 1) + (n << 2) + ~n


@devious(SOME, ROWS)
def evened(x: Tensor) -> Tensor:
    return x[: x.shape[0] & ~1].view(-1, 6).sum(1)


@devious(SOME, ROWS)
def truncated(x: Tensor) -> Tensor:
    n = x.shape[0]
    return x + math.trunc(-n / 3) + math.fmod(n, 4) + math.floor(-n / 4) + round(n / 4)


@devious(SOME, ROWS)
def pairs_of_rows(x: Tensor) -> Tensor:
    return x * math.comb(x.shape[0], 2) + math.perm(x.shape[0], 1)


@devious(SOME, ROWS)
def every_third_backwards(x: Tensor) -> Tensor:
    return x[torch.arange(x.shape[0] - 1, -1, -3)]


@devious(SOME, ROWS)
def third_numbers_of_a_list(x: Tensor) -> Tensor:
    return x[[i for i in range(x.shape[0]) if i % 3 == 0]]


@devious(SOME, ROWS)
def squares_in_a_list(x: Tensor) -> Tensor:
    return x + torch.tensor([float(i * i) for i in range(x.shape[0])])[:, None]


@devious(SOME, ROWS)
def decays(x: Tensor) -> Tensor:
    n = x.shape[0]
    return x * 0.9**n + 2.0**-n + 1.0 / n**2 + math.exp(-n / 8)


@devious(SOME, ROWS)
def by_numpy(x: Tensor) -> Tensor:
    return x * torch.from_numpy(np.hanning(x.shape[0] + 2)[1:-1].astype("float32"))[:, None] + float(np.log(x.shape[0]))


@devious(SOME, ROWS)
def windows_of_half(x: Tensor) -> Tensor:
    return x.unfold(0, max(1, x.shape[0] // 2), 1).mean(-1)


@devious(SOME, ROWS)
def pooled_by_its_own_half(x: Tensor) -> Tensor:
    k = x.shape[0] // 2 + 1
    return F.max_pool1d(x.mT, k, stride=1, padding=k // 2)


@devious(lambda: [(floats(1, 2, n),) for n in (10, 3, 4, 5, 6, 7, 8, 9, 15)], ({2: "n"},))
def last_window_in_the_padding(x: Tensor) -> Tensor:
    return F.avg_pool1d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False) + F.max_pool1d(x, 3, 2, 1, ceil_mode=True)


@devious(lambda: [(floats(1, 2, n),) for n in (10, 3, 4, 5, 6, 7, 8, 9, 15)], ({2: "n"},))
def padded_as_needed(x: Tensor) -> Tensor:
    short = -x.shape[-1] % 4
    return F.avg_pool1d(F.pad(x, (short // 2, short - short // 2), mode="reflect"), 4, 4)


@devious(SOME, ROWS)
def normal_over_everything(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape) + F.layer_norm(x, (int(x.shape[-1]),))


@devious(SOME, ROWS)
def triangles(x: Tensor) -> Tensor:
    n = x.shape[0]
    rows, columns = torch.triu_indices(n, n, 1)
    return (x[rows] - x[columns]).abs().sum(0) + torch.eye(n, n + 1).tril(-(n // 3)).sum()


@devious(SOME, ROWS)
def rolled_by_more(x: Tensor) -> Tensor:
    n = x.shape[0]
    return x.roll(n // 2 + 7, 0) + x.roll((-1, 5), (0, 1)) + x.roll(-2 * n - 1)


@devious(SOME, ROWS)
def three_parts(x: Tensor) -> Tensor:
    return torch.stack([part.sum(0) for part in x.tensor_split(3)]) + x.tensor_split((2, -1))[1].sum(0)
