"""Neighbours of the other kinds: helpers in globals, numpy, float(), methods of numbers, slices of data."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.devious.kinds import devious, floats, planted, sizes

ROWS = ({0: "n"},)
IDS = torch.tensor([[5, 9, 12, 3], [7, 30, 2, 11]])


def _is_long(x: Tensor) -> bool:
    return len(x) > 96


@devious(sizes(10, 97, 96, 300), ROWS)
def long_by_a_helper(x: Tensor) -> Tensor:
    return x.mean(0) if _is_long(x) else x.sum(0)


@devious(sizes(10, 257, 256, 255, 600), ROWS)
def float_of_the_size(x: Tensor) -> Tensor:
    return x * 2 if float(x.shape[0]) > 256.0 else x


@devious(sizes(10, 41, 40, 90), ROWS)
def a_quarter_times_two(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] / 4 * 2 > 20 else x


@devious(lambda: [(floats(1, 2, h, w, seed=h + w),) for h, w in ((6, 8), (9, 16), (16, 9), (36, 64), (5, 5))],
         ({2: "h", 3: "w"},))  # fmt: skip
def sixteen_to_nine(x: Tensor) -> Tensor:
    return x.sum((2, 3)) if math.isclose(x.shape[3] / x.shape[2], 16 / 9) else x.mean((2, 3))


@devious(sizes(10, 1024, 1025, 100), ROWS)
def log_of_the_size(x: Tensor) -> Tensor:
    return x * 2 if math.log2(x.shape[0]) > 10 else x


@devious(sizes(10, 60, 59, 61, 2), ROWS)
def rounded_tenth(x: Tensor) -> Tensor:
    return x * 2 if round(x.shape[0] / 10) >= 6 else x


@devious(lambda: [(floats(4),), (planted(floats(4), 9.0, 1),)])
def asked_of_numpy(x: Tensor) -> Tensor:
    return x * 2 if np.any(x.numpy() > 8) else x


@devious(lambda: [(floats(5).abs(),), (torch.full((5,), 30.0),)])
def float_of_the_mean(x: Tensor) -> Tensor:
    return x * 2 if float(x.mean()) ** 2 > 400 else x


@devious(lambda: [(floats(5).abs(),), (torch.full((5,), 1e-4),), (torch.full((5,), 1e4),)])
def by_exponent(x: Tensor) -> Tensor:
    mantissa, exponent = math.frexp(x.max().item())
    return x * exponent + mantissa * 0


@devious(lambda: [(floats(6),), (torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0]),)], ROWS)
def alternates(x: Tensor) -> Tensor:
    return x * 2 if (x[1:] * x[:-1] < 0).all() else x


@devious(lambda: [(floats(3, 4),), (torch.nn.functional.normalize(floats(3, 4), dim=1),)], ROWS)
def unit_rows(x: Tensor) -> Tensor:
    ones = torch.ones(x.shape[0])
    return x * 3 if torch.allclose(x.norm(dim=1), ones, atol=1e-4) else x


@devious(lambda: [(floats(3, 4),), (floats(3, 4) - floats(3, 4).mean(0),)], ROWS)
def centred_columns(x: Tensor) -> Tensor:
    return x * 3 if x.mean(0).abs().max() < 1e-5 else x


@devious(lambda: [(floats(3, 3),), (torch.eye(3),), (torch.linalg.qr(floats(3, 3)).Q,)])
def orthogonal(x: Tensor) -> Tensor:
    return x.mT if torch.allclose(x @ x.mT, torch.eye(3), atol=1e-5) else torch.linalg.inv(x)


@devious(
    lambda: [
        (IDS,),
        (torch.full((2, 4), 2),),
        (torch.tensor([[5, 2, 2, 2], [7, 2, 2, 2]]),),
        (torch.tensor([[5, 9, 2, 2], [7, 1, 8, 2]]),),
    ]
)
def padded_at_the_end(ids: Tensor) -> Tensor:
    kept = int((ids != 2).any(0).sum())
    return ids[:, : kept or 1].sum(1)


@devious(lambda: [(IDS,), (IDS.sort(1).values,), (IDS.sort(1, descending=True).values,)], branches=True)
def falls(ids: Tensor) -> Tensor:
    return ids * 2 if (ids[:, 1:] < ids[:, :-1]).all() else ids


@devious(lambda: [(torch.tensor([3, 1, 2]),), (torch.tensor([2, 0, 1]),), (torch.tensor([0, 1, 2]),)])
def a_permutation(ids: Tensor) -> Tensor:
    return ids.argsort() if torch.equal(ids.sort().values, torch.arange(3)) else ids


@devious(lambda: [(torch.tensor([10, 14, 19]),), (torch.tensor([10, 11, 12]),), (torch.tensor([3, 4, 5]),)])
def consecutive(ids: Tensor) -> Tensor:
    return ids[:1] if (ids.diff() == 1).all() else ids


@devious(
    lambda: [(floats(3, 4), floats(3, 4, seed=2)), (floats(3, 4), -floats(3, 4)), (floats(3, 4), floats(3, 4) * 2)]
)
def opposite_inputs(x: Tensor, y: Tensor) -> Tensor:
    return x * 2 if (x + y == 0).all() else x + y


@devious(
    lambda: [(floats(3, 4), floats(3, 4, seed=2)), (floats(3, 4), floats(3, 4) + 1), (floats(3, 4), floats(3, 4) - 1)]
)
def all_above_the_other(x: Tensor, y: Tensor) -> Tensor:
    return y if (y > x).all() else x


@devious(lambda: [(floats(4, 3), torch.tensor([0, 2, 1, 3])), (floats(4, 3), torch.tensor([0, 0, 1, 3])),
                  (floats(4, 3), torch.tensor([3, 2, 2, 2]))])  # fmt: skip
def repeated_index(x: Tensor, index: Tensor) -> Tensor:
    return x.index_add(0, index, x) if index.unique().numel() == 4 else x


class Threshold(nn.Module):
    """Compares with a limit that it computes from an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = 12

    def forward(self, x: Tensor) -> Tensor:
        return x.clamp(max=1) if x.norm().item() / x.numel() > self.limit else x


devious(lambda: [(floats(4),), (torch.full((4,), 90.0),)])(Threshold)


@devious(lambda: [(floats(2, 3, 4, 4),), (planted(floats(2, 3, 4, 4).abs(), 200.0, 40),), (floats(2, 3, 4, 4) * 80,)])
def image_of_bytes(x: Tensor) -> Tensor:
    return x / 255 if x.max() > 128 else x


@devious(
    lambda: [(floats(2, 3),), (planted(floats(2, 3), float("inf"), 4),), (planted(floats(2, 3), float("-inf"), 0),)]
)
def all_finite(x: Tensor) -> Tensor:
    return x if torch.isfinite(x).all() else x.clamp(-9, 9)


@devious(lambda: [(floats(6),), (planted(floats(6), -3.0, 0, 2),), (planted(floats(6), 0.0, 1, 3),)])
def zeros_kept(x: Tensor) -> Tensor:
    return x[x.nonzero()[:, 0]].sum() + x.count_nonzero()


def padded(*row: float) -> tuple[Tensor, Tensor]:
    return floats(3, 4), torch.tensor([row] * 3)


@devious(lambda: [padded(1.0, 1.0, 1.0, 0.0), padded(0.0, 1.0, 1.0, 1.0), padded(1.0, 0.0, 1.0, 0.0)])
def left_or_right_padding(x: Tensor, mask: Tensor) -> Tensor:
    return x.flip(1) if mask[:, -1].sum() == mask.shape[0] else x
