"""Fractional max pooling: windows of one size at places that are drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import missing, op
from onnxpatch.formulas.symbolic import counted


def _fractions(x: Tensor, shares: Tensor) -> tuple[Tensor, ...]:
    pool = functional.fractional_max_pool2d(x, 3, (3, 4), _random_samples=shares)
    volume = functional.fractional_max_pool3d(
        x[:, None], (1, 3, 2), 2, _random_samples=shares.repeat(1, 1, 2)[:, :1, 1:]
    )
    return pool, volume, functional.fractional_max_pool2d(x[0], (3, 2), 2), functional.fractional_max_pool2d(x, 2, 1)


@op(
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    name="fractional-max-pooling",
    why=missing("aten::fractional_max_pool2d", "aten::fractional_max_pool3d"),
    reason="fractional_max_pool|static shape",
    tries=lambda b, h: (torch.randn(b, 3, h + 4, 8), torch.rand(b, 3, 2)),
    case=_fractions,
)
def fractional_max(
    original: Callable[..., object],
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: object = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor:
    """Computes the maximum in each window, one axis after the other. What is drawn is one number for each."""
    if return_indices or "with_indices" in original.__name__:
        return NotImplemented
    rank = 3 if "3d" in original.__name__ else 2
    each = [list(n) if isinstance(n, tuple | list) else [n] * rank for n in (kernel_size, output_size, output_ratio)]
    x = input.flatten(0, -rank - 1)
    drawn = torch.rand([x.shape[0], rank], dtype=x.dtype) if _random_samples is None else _random_samples
    drawn = drawn.reshape(-1, rank).to(x.device)
    drawn = drawn.flip(1) if rank == 2 else drawn  # of a map the first number is for its rows
    for at, (width, size, ratio) in enumerate(zip(*each, strict=True)):
        length = counted(x.shape[at + 1], x)
        size = (length.to(torch.float64) * ratio).to(torch.int64) if size is None else size
        last, ticks = length - width, torch.arange(size, device=x.device)
        step, share = last.to(x.dtype) / (torch.ones_like(ticks).sum() - 1).clamp(min=1), drawn[:, at : at + 1]
        starts = torch.floor((ticks + share) * step) - torch.floor(share * step)
        starts = torch.where(ticks == size - 1, last, starts.to(torch.int64))
        places = (starts.unsqueeze(-1) + torch.arange(width, device=x.device)).flatten(1)
        index = places.reshape([-1, *(size * width if axis == at else 1 for axis in range(rank))])
        index = index.expand([*x.shape[: at + 1], size * width, *x.shape[at + 2 :]])
        windows = x.gather(at + 1, index)
        x = windows.reshape([*x.shape[: at + 1], size, width, *x.shape[at + 2 :]]).amax(at + 2)
    return x.reshape([*input.shape[:-rank], *x.shape[1:]])
