"""math.sqrt, math.log and math.log2 of sizes stay symbolic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.symbolic import as_float, symbolic

FROZEN = "a size becomes a constant: int(), float(), math.* or torch_int of a shape freezes the traced value"
LINK = "https://github.com/huggingface/transformers/issues/26790"


def _root(x: Tensor) -> Tensor:
    return x / math.sqrt(x.shape[1])


@op(
    "math.sqrt",
    name="symbolic-sqrt",
    why=FROZEN,
    reason="_sym_sqrt|relative error",
    link=LINK,
    tries=lambda n: torch.ones(2, n),
    sizes=(6, 3, 11),
    case=_root,
    unchanged="fixed sizes",
)
def symbolic_sqrt(original: Callable[..., Tensor], value: object) -> object:
    """Keeps `math.sqrt(size)` symbolic."""
    if not symbolic(value):
        return NotImplemented
    # torch.sym_sqrt has no ONNX form; a power of a SymFloat has.
    return torch.sqrt(as_float(value)) if isinstance(value, Tensor) else as_float(value) ** 0.5


def _halvings(x: Tensor) -> Tensor:
    return x / 2 ** int(math.log2(x.shape[1]))


@op(
    "math.log2",
    name="symbolic-log2",
    why=FROZEN,
    reason="relative error",
    link=LINK,
    exporters=("trace",),
    # int() after log2 shows whether powers of two come out exactly.
    tries=lambda n: torch.ones(2, n),
    sizes=(8, 3, 64, 65),
    case=_halvings,
    unchanged=lambda x: x * math.log2(8),
    beside=("symbolic-int",),  # int() of the logarithm
)
def symbolic_log2(original: Callable[..., Tensor], value: object) -> object:
    """Keeps `math.log2(size)` symbolic under trace."""
    # as_float is float64: in float32 log2(8) may be a little below 3.
    return torch.log2(as_float(value)) if isinstance(value, Tensor) and symbolic(value) else NotImplemented


def _entropy(x: Tensor) -> Tensor:
    """A temperature that grows with the logarithm of the length, as attention to lengths never trained on has."""
    n = x.shape[1]
    return x * math.log(n, 512) + math.log(n + 1) / n


@op(
    "math.log",
    name="symbolic-log",
    why=FROZEN,
    reason="static shape|relative error",
    link=LINK,
    tries=lambda n: torch.ones(2, n),
    sizes=(6, 3, 11),
    case=_entropy,
    unchanged="fixed sizes",
)
def symbolic_log(original: Callable[..., Tensor], value: Any, *base: object) -> object:
    """Computes `math.log(size)` as a 0-d tensor: torch.export has a symbolic logarithm to base 2 only."""
    if not symbolic(value) or not all(isinstance(b, int | float) for b in base):
        return NotImplemented
    number = as_float(value) if isinstance(value, Tensor) else torch.scalar_tensor(value, dtype=torch.float32)
    return torch.log(number) / original(base[0]) if base else torch.log(number)
