"""cumprod, logcumsumexp, cummax and cummin by doubling steps, without a tensor of (length, length)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from onnxpatch import Proof, patch
from onnxpatch.formulas import scans


class _Running(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.cumprod(x, 1), torch.logcumsumexp(x * 200, dim=1)


@patch(
    "torch.cumprod",
    "torch.Tensor.cumprod",
    "torch.logcumsumexp",
    "torch.Tensor.logcumsumexp",
    name="running-products",
    why="Exporting the operator 'aten::cumprod' to ONNX is not supported; logcumsumexp of wide inputs is inf",
    link="https://github.com/pytorch/pytorch/issues/126972",
    exporters=("dynamo", "trace"),
    proof=Proof(
        build=_Running,
        inputs=lambda: [(torch.randn(b, n, 3),) for b, n in ((2, 6), (3, 11), (1, 1))],
        dynamic_shapes=({0: "batch", 1: "length"},),
        fails=("dynamo", "trace"),
        reason="prims.prod|aten::cumprod",
    ),
)
def running_product(
    original: Callable[..., torch.Tensor], input: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Computes cumprod or logcumsumexp in log2(length) steps."""
    if not (dtype or input.dtype).is_floating_point or input.dim() == 0:
        return NotImplemented
    x = input if dtype is None else input.to(dtype)
    return scans.cumprod(x, dim) if original.__name__ == "cumprod" else _logcumsumexp(x, dim)


def _logcumsumexp(x: torch.Tensor, dim: int) -> torch.Tensor:
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    return scans.logcumsumexp(wide, dim).to(x.dtype)


class Extremes(NamedTuple):
    """torch's result: the extreme entries so far, and their indices."""

    values: torch.Tensor
    indices: torch.Tensor


class _Extremes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ranked = (x * 3).to(torch.int64)
        return (*torch.cummax(x.round(), 1), *x.cummin(dim=-1), *ranked.cummax(-2), *ranked.cummin(1))


@patch(
    "torch.cummax",
    "torch.Tensor.cummax",
    "torch.cummin",
    "torch.Tensor.cummin",
    name="running-extremes",
    why="Exporting the operator 'aten::cummax' to ONNX is not supported; No ONNX function found for aten.cummax",
    link="https://github.com/pytorch/pytorch/issues/126972",
    exporters=("dynamo", "trace"),
    proof=Proof(
        build=_Extremes,
        inputs=lambda: [(torch.randn(b, n, 3),) for b, n in ((2, 6), (3, 11), (1, 1))],
        dynamic_shapes=({0: "batch", 1: "length"},),
        fails=("dynamo", "trace"),
        reason=r"aten(::|\.)cummax",
    ),
)
def running_extreme(original: Callable[..., torch.Tensor], input: torch.Tensor, dim: int) -> Extremes:
    """Computes cummax or cummin by the same steps. Rows with a NaN or infinity before a number differ from torch."""
    if input.dim() == 0:
        return NotImplemented
    # The smallest entry so far is the largest of the negative ones.
    sign = 1 if original.__name__ == "cummax" else -1
    largest, places = scans.cummax(sign * input, dim % input.dim())
    return Extremes(sign * largest, places)
