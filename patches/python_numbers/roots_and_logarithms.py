"""math.sqrt, math.log and math.log2 of sizes stay symbolic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas.proof_models import Computes
from onnxpatch.formulas.symbolic import as_float, symbolic

FROZEN = "a size becomes a constant: int(), float(), math.* or torch_int of a shape freezes the traced value"
LINK = "https://github.com/huggingface/transformers/issues/26790"


class _Root(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / math.sqrt(x.shape[1])


@patch(
    "math.sqrt",
    name="symbolic-sqrt",
    why=FROZEN,
    link=LINK,
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Root,
        lambda: [(torch.ones(2, n),) for n in (6, 3, 11)],
        ({1: "n"},),
        fails=("dynamo", "trace"),
        reason="_sym_sqrt|relative error",
        unchanged="fixed sizes",
    ),
)
def symbolic_sqrt(original: Callable[..., Tensor], value: object) -> object:
    """Keeps `math.sqrt(size)` symbolic."""
    if not symbolic(value):
        return NotImplemented
    # torch.sym_sqrt has no ONNX form; a power of a SymFloat has.
    return torch.sqrt(as_float(value)) if isinstance(value, Tensor) else as_float(value) ** 0.5


class _Halvings(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / 2 ** int(math.log2(x.shape[1]))


@patch(
    "math.log2",
    name="symbolic-log2",
    why=FROZEN,
    link=LINK,
    exporters=("trace",),
    proof=Proof(
        _Halvings,
        # int() after log2 shows whether powers of two come out exactly.
        lambda: [(torch.ones(2, n),) for n in (8, 3, 64, 65)],
        ({1: "n"},),
        fails=("trace",),
        reason="relative error",
        # int() of the logarithm is that patch's.
        beside=("symbolic-int",),
        unchanged=lambda: Computes(lambda x: x * math.log2(8)),
    ),
)
def symbolic_log2(original: Callable[..., Tensor], value: object) -> object:
    """Keeps `math.log2(size)` symbolic under trace."""
    # as_float is float64: in float32 log2(8) may be a little below 3.
    return torch.log2(as_float(value)) if isinstance(value, Tensor) and symbolic(value) else NotImplemented


class _Entropy(torch.nn.Module):
    """A temperature that grows with the logarithm of the length, as attention to lengths never trained on has."""

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        return x * math.log(n, 512) + math.log(n + 1) / n


@patch(
    "math.log",
    name="symbolic-log",
    why=FROZEN,
    link=LINK,
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Entropy,
        lambda: [(torch.ones(2, n),) for n in (6, 3, 11)],
        ({1: "n"},),
        fails=("dynamo", "trace"),
        reason="static shape|relative error",
        unchanged="fixed sizes",
    ),
)
def symbolic_log(original: Callable[..., Tensor], value: Any, *base: object) -> object:
    """Computes `math.log(size)` as a 0-d tensor: torch.export has a symbolic logarithm to base 2 only."""
    if not symbolic(value) or not all(isinstance(b, int | float) for b in base):
        return NotImplemented
    number = as_float(value) if isinstance(value, Tensor) else torch.scalar_tensor(value, dtype=torch.float32)
    return torch.log(number) / original(base[0]) if base else torch.log(number)
