"""Windows of a spectrum by their formulas: of any length, also one that is computed from sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import missing, op


def _hamming(t: Tensor, alpha: float = 0.54, beta: float = 0.46) -> Tensor:
    return alpha - beta * torch.cos(2 * math.pi * t)


def _blackman(t: Tensor) -> Tensor:
    return 0.42 - 0.5 * torch.cos(2 * math.pi * t) + 0.08 * torch.cos(4 * math.pi * t)


def _kaiser(t: Tensor, beta: float = 12.0) -> Tensor:
    return torch.special.i0(beta * torch.sqrt(1 - (2 * t - 1) ** 2)) / torch.special.i0(torch.full_like(t, beta))


_SHAPES: dict[str, Callable[..., Tensor]] = {
    "hann_window": lambda t: _hamming(t, 0.5, 0.5),
    "hamming_window": _hamming,
    "blackman_window": _blackman,
    "bartlett_window": lambda t: 1 - (2 * t - 1).abs(),
    "kaiser_window": _kaiser,
}
"""Each by its positions from 0 to 1, and by its own numbers."""


def _windowed(x: Tensor) -> Tensor:
    n = x.shape[1]
    windows = [getattr(torch, name) for name in _SHAPES]
    return torch.stack([x * (w(n) + w(n, periodic=False) + w(6).max() + w(1)) for w in windows])


@op(
    *_SHAPES,
    name="spectrum-windows",
    reason=r"aten(::|\.)\w+_window|static shape",
    why=missing(*(f"aten::{name}" for name in _SHAPES)),
    # A length of 1 as well, for which eager has 1 whatever the formula says.
    tries=lambda b, n: torch.randn(b, n),
    sizes=((2, 8), (3, 5), (1, 2), (2, 1)),
    case=_windowed,
    beside=("i0",),
)
def window(original: Any, window_length: Any, periodic: bool = True, *numbers: Any, **kwargs: Any) -> Tensor:
    """Computes the window from `arange`, so that its length may be dynamic."""
    made = {key: kwargs.pop(key, None) for key in ("dtype", "device", "layout", "requires_grad", "pin_memory")}
    dtype = made["dtype"] or torch.get_default_dtype()
    ticks = torch.arange(window_length, device=made["device"])
    # Counted in the graph: a Python number would fix the length at the example's.
    count = torch.ones_like(ticks).sum()
    steps = (count if periodic else count - 1).clamp(min=1)
    shape = _SHAPES[original.__name__](ticks.to(dtype) / steps.to(dtype), *numbers, **kwargs)
    return torch.where(count == 1, torch.ones_like(shape), shape)
