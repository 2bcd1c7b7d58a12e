"""Graphs that are right in a range of sizes, or at multiples, and wrong beyond."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from benchmarks.devious.kinds import devious, floats, sizes

ROWS = ({0: "n"},)


@devious(sizes(6, 1, 2, 9, 40), ROWS)
def other_for_one(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] == 1 else x


@devious(sizes(6, 5, 8, 1, 31, 64), ROWS)
def other_for_odd(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] % 2 else x


@devious(sizes(10, 33, 70, 71, 90, 4), ROWS)
def other_from_71(x: Tensor) -> Tensor:
    return x.flip(0) if x.shape[0] > 70 else x


@devious(lambda: [(floats(1, 1, h, w, seed=h),) for h, w in ((8, 12), (9, 12), (8, 13), (16, 4), (3, 3))],
         ({2: "h", 3: "w"},))  # fmt: skip
def padded_to_even(x: Tensor) -> Tensor:
    if x.shape[-1] % 2 or x.shape[-2] % 2:
        x = F.pad(x, (0, x.shape[-1] % 2, 0, x.shape[-2] % 2))
    return F.avg_pool2d(x, 2)


@devious(lambda: [(floats(1, 3, n, n + k, seed=n),) for n, k in ((6, 1), (6, 0), (4, 3), (9, 0))], ({2: "h", 3: "w"},))
def square_is_other(x: Tensor) -> Tensor:
    return x.mT if x.shape[-1] == x.shape[-2] else x.flatten(2)[..., None].sum(1)


@devious(sizes(12, 11, 13, 7, 24, 37), ROWS)
def first_dozen(x: Tensor) -> Tensor:
    return x[: min(x.shape[0], 12)].sum(0) + max(0, x.shape[0] - 12)
