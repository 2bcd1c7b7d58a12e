"""Work done in pieces, and thresholds on sizes that hide from a comparison: ranges, splits, shifts, bytes, tensors."""

from __future__ import annotations

import bisect
import math

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.devious.kinds import devious, floats, sizes

ROWS = ({0: "n"},)


@devious(sizes(10, 256, 257, 600), ROWS)
def pieces_of_a_range(x: Tensor) -> Tensor:
    return torch.cat([x[i : i + 256].cumsum(0) for i in range(0, x.shape[0], 256)])


@devious(sizes(10, 200, 201, 650), ROWS)
def pieces_of_a_split(x: Tensor) -> Tensor:
    return torch.cat([part - part.mean(0) for part in x.split(200)])


class Pieces(nn.Module):
    """Works on pieces whose length is an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once = 150
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        found = [self.linear(x[i : i + self.at_once]).softmax(0) for i in range(0, len(x), self.at_once)]
        return torch.cat(found)


devious(sizes(10, 150, 151, 320), ROWS)(Pieces)


@devious(sizes(10, 64, 65, 130, 63), ROWS)
def rounded_up_by_signs(x: Tensor) -> Tensor:
    return x * -(-x.shape[0] // 64)


@devious(sizes(10, 64, 128, 63, 200), ROWS)
def shifted_size(x: Tensor) -> Tensor:
    return x * (1 + (x.shape[0] >> 6))


@devious(sizes(10, 100, 99, 250), ROWS)
def hundreds_by_divmod(x: Tensor) -> Tensor:
    hundreds, _ = divmod(x.shape[0], 100)
    return x + hundreds


@devious(sizes(10, 1366, 1365, 2000), ROWS)
def many_bytes(x: Tensor) -> Tensor:
    return x.half().float() if x.nbytes > 16384 else x


@devious(sizes(10, 201, 200, 300), ROWS)
def by_searchsorted(x: Tensor) -> Tensor:
    return x * (1.0 + int(np.searchsorted([50, 200], x.shape[0])))


@devious(sizes(10, 81, 80, 300), ROWS)
def by_bisection(x: Tensor) -> Tensor:
    return x * (1.0 + bisect.bisect_left([80, 220], x.shape[0]))


@devious(sizes(10, 51, 50, 9, 300), ROWS)
def size_as_a_tensor(x: Tensor) -> Tensor:
    return torch.where(torch.tensor(x.shape[0]) > 50, x * 2, x)


@devious(sizes(10, 65, 64, 300), ROWS)
def size_in_a_full_tensor(x: Tensor) -> Tensor:
    limit = torch.full((1,), x.shape[0]).clamp(max=64)
    return x * limit


@devious(sizes(10, 91, 90, 300), ROWS)
def counted_ones(x: Tensor) -> Tensor:
    return x * 2 if torch.ones(x.shape[0]).sum() > 90 else x


@devious(sizes(10, 21, 24, 25, 20, 70), ROWS)
def inside_a_window(x: Tensor) -> Tensor:
    if x.shape[0] > 20:
        y = x * 2
        if x.shape[0] < 25:
            return y
    return x


@devious(sizes(10, 52, 59, 50, 53), ROWS)
def rest_beyond_fifty(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] > 50 and x.shape[0] % 7 == 3 else x


@devious(lambda: [(floats(n, m),) for n, m in ((6, 8), (9, 4), (17, 8), (20, 31), (3, 1))], ({0: "n", 1: "m"},))
def twice_and_one(x: Tensor) -> Tensor:
    return x.sum() if x.shape[0] == 2 * x.shape[1] + 1 else x.mean()


@devious(lambda: [(floats(n, m),) for n, m in ((6, 8), (25, 25), (30, 40), (5, 36), (36, 1))], ({0: "n", 1: "m"},))
def long_diagonal(x: Tensor) -> Tensor:
    return x.sum() if math.hypot(*x.shape) > 35.4 else x.mean()


@devious(sizes(10, 334, 333, 400), ROWS)
def elements_of_the_shape(x: Tensor) -> Tensor:
    return x.sum(0) if x.shape.numel() > 1000 else x.mean(0)


@devious(sizes(10, 120, 121, 240, 130, 1, 5), ROWS)
def sums_of_chunks(x: Tensor) -> Tensor:
    return torch.stack([part.sum(0) for part in x.chunk(4)])


@devious(sizes(10, 4, 2, 1, 9, 5), ROWS)
def number_of_chunks(x: Tensor) -> Tensor:
    parts = x.chunk(3)
    return parts[-1].sum(0) * len(parts)


@devious(sizes(10, 300, 301, 512), ROWS)
def table_until_it_ends(x: Tensor) -> Tensor:
    table = torch.linspace(0, 1, 300)[: x.shape[0], None]
    return x[: table.shape[0]] + table
