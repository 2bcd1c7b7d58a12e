"""cumprod, logcumsumexp, cummax and cummin by doubling steps, without a tensor of (length, length)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from onnxpatch import missing, op
from onnxpatch.formulas import scans


@op(
    "cumprod",
    "logcumsumexp",
    name="running-products",
    why="Exporting the operator 'aten::cumprod' to ONNX is not supported; logcumsumexp of wide inputs is inf",
    reason="prims.prod|aten::cumprod",
    link="https://github.com/pytorch/pytorch/issues/126972",
    tries=lambda b, n: torch.randn(b, n, 3),
    sizes=((2, 6), (3, 11), (1, 1)),
    case=lambda x: (torch.cumprod(x, 1), torch.logcumsumexp(x * 200, dim=1)),
)
def running_product(
    original: Callable[..., Tensor], input: Tensor, dim: int, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Computes cumprod or logcumsumexp in log2(length) steps."""
    if not (dtype or input.dtype).is_floating_point or input.dim() == 0:
        return NotImplemented
    x = input if dtype is None else input.to(dtype)
    return scans.cumprod(x, dim) if original.__name__ == "cumprod" else _logcumsumexp(x, dim)


def _logcumsumexp(x: Tensor, dim: int) -> Tensor:
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    return scans.logcumsumexp(wide, dim).to(x.dtype)


class Extremes(NamedTuple):
    """torch's result: the extreme entries so far, and their indices."""

    values: Tensor
    indices: Tensor


def _extremes(x: Tensor) -> tuple[Tensor, ...]:
    ranked = (x * 3).to(torch.int64)
    return (*torch.cummax(x.round(), 1), *x.cummin(dim=-1), *ranked.cummax(-2), *ranked.cummin(1))


@op(
    "cummax",
    "cummin",
    name="running-extremes",
    why=missing("aten::cummax"),
    reason=r"aten(::|\.)cummax",
    tries=lambda b, n: torch.randn(b, n, 3),
    sizes=((2, 6), (3, 11), (1, 1)),
    case=_extremes,
)
def running_extreme(original: Callable[..., Tensor], input: Tensor, dim: int) -> Extremes:
    """Computes cummax or cummin by the same steps. Rows with a NaN or infinity before a number differ from torch."""
    if input.dim() == 0:
        return NotImplemented
    # The smallest entry so far is the largest of the negative ones.
    sign = 1 if original.__name__ == "cummax" else -1
    largest, places = scans.cummax(sign * input, dim % input.dim())
    return Extremes(sign * largest, places)
