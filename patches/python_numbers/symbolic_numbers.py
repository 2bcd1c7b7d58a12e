"""Numbers made of sizes stay symbolic: int, float, len, max, min, math.* and transformers' torch_int, torch_float."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas.proof_models import Computes
from onnxpatch.formulas.symbolic import as_float, symbolic, truncated

FROZEN = "a size becomes a constant: int(), float(), math.* or torch_int of a shape freezes the traced value"
LINK = "https://github.com/huggingface/transformers/issues/26790"
_GRID = ({0: "b", 1: "h", 2: "w"},)


class _SquareGrid(torch.nn.Module):
    """Tokens back to a square image, the side computed from their number."""

    def forward(self, tokens: Tensor) -> Tensor:
        side = int(tokens.shape[1] ** 0.5)
        return tokens.transpose(1, 2).reshape(tokens.shape[0], -1, side, side).cumsum(-1)


def _squares() -> list[tuple[Tensor]]:
    return [(torch.randn(2, n, 3),) for n in (16, 4, 49, 1369)]


@patch(
    "builtins.int",
    "transformers.utils.torch_int",
    name="symbolic-int",
    why=FROZEN,
    link=LINK,
    exporters=("dynamo", "trace"),
    proof=Proof(
        _SquareGrid,
        _squares,
        ({0: "b", 1: "n"},),
        fails=("dynamo", "trace"),
        reason="cannot be reshaped",
        unchanged="fixed sizes",
    ),
)
def symbolic_int(original: Callable[..., Tensor], *args: object, **kwargs: object) -> Any:
    """`int(size)` that stays a size; anything else is Python's int."""
    if len(args) == 1 and not kwargs and symbolic(args[0]):
        return truncated(args[0])
    return NotImplemented


class _Share(torch.nn.Module):
    """Every value as a share of the number of rows."""

    def forward(self, x: Tensor) -> Tensor:
        return x / float(x.shape[1] // 2 + 1)


@patch(
    "builtins.float",
    "transformers.utils.torch_float",
    name="symbolic-float",
    why=FROZEN,
    link=LINK,
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Share,
        lambda: [(torch.ones(2, n),) for n in (6, 3, 11)],
        ({1: "n"},),
        fails=("dynamo", "trace"),
        reason="relative error",
        unchanged="fixed sizes",
    ),
)
def symbolic_float(original: Callable[..., Tensor], *args: object, **kwargs: object) -> Any:
    """`float(size)` that stays a size."""
    if len(args) == 1 and not kwargs and symbolic(args[0]):
        return as_float(args[0])
    return NotImplemented


class _Tiled(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.arange(x.shape[1]).repeat(len(x), 1)


def _batches() -> list[tuple[Tensor]]:
    return [(torch.ones(*size),) for size in ((3, 4), (1, 2), (5, 7))]


@patch(
    "builtins.len",
    name="symbolic-len",
    why="Using len to get tensor shape might cause the trace to be incorrect: the batch of the example stays",
    link=LINK,
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Tiled,
        _batches,
        ({0: "b", 1: "n"},),
        fails=("trace",),
        exporters=("dynamo",),
        reason="shape",
        unchanged="fixed sizes",
    ),
)
def symbolic_len(original: Callable[[Any], int], value: object) -> Any:
    """`len(tensor)` that stays a size."""
    return value.shape[0] if isinstance(value, Tensor) and value.dim() else NotImplemented


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
def symbolic_sqrt(original: Callable[..., Tensor], value: object) -> Any:
    """`math.sqrt(size)` that stays a size."""
    if not symbolic(value):
        return NotImplemented
    return torch.sqrt(as_float(value)) if isinstance(value, Tensor) else as_float(value) ** 0.5


class _Flat(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        import numpy

        count: Any = numpy.prod(x.shape[1:3])
        return x.reshape(x.shape[0], count, -1).cumsum(1)


@patch(
    "numpy.prod",
    "math.prod",
    name="symbolic-product",
    why=FROZEN,
    link=LINK,
    exporters=("trace",),
    proof=Proof(
        _Flat,
        lambda: [(torch.ones(2, *n, 3),) for n in ((4, 5), (7, 2))],
        _GRID,
        fails=("trace",),
        reason="cannot be reshaped",
        unchanged=lambda: Computes(lambda x: x * math.prod((2, 3))),
    ),
)
def symbolic_product(original: Callable[..., Tensor], values: object) -> Any:
    """`numpy.prod(x.shape[1:3])` that stays a size, under trace; math.prod of symbolic sizes multiplies by itself."""
    numbers = list(values) if isinstance(values, tuple | list) else []
    if not any(isinstance(number, Tensor) and symbolic(number) for number in numbers):
        return NotImplemented
    return functools.reduce(operator.mul, numbers)


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
        lambda: [(torch.ones(2, n),) for n in (8, 3, 64, 65)],
        ({1: "n"},),
        fails=("trace",),
        reason="relative error",
        beside=("symbolic-int",),
        unchanged=lambda: Computes(lambda x: x * math.log2(8)),
    ),
)
def symbolic_log2(original: Callable[..., Tensor], value: object) -> Any:
    """`math.log2(size)` that stays a size, under trace."""
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
def symbolic_log(original: Callable[..., Tensor], value: Any, *base: Any) -> Any:
    """`math.log(size)` as a 0-d tensor: torch.export has no symbolic logarithm but that to base 2."""
    if not symbolic(value) or not all(isinstance(b, int | float) for b in base):
        return NotImplemented
    number = as_float(value) if isinstance(value, Tensor) else torch.scalar_tensor(value, dtype=torch.float32)
    return torch.log(number) / original(base[0]) if base else torch.log(number)


class _Rounded(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        up, down = math.ceil(x.shape[1] / 3), math.floor(x.shape[1] / 2)
        return x.new_ones(up, down).cumsum(0)


@patch(
    "math.ceil",
    "math.floor",
    "math.trunc",
    name="symbolic-rounding",
    why=FROZEN,
    link=LINK,
    exporters=("trace",),
    proof=Proof(
        _Rounded,
        lambda: [(torch.ones(2, n),) for n in (6, 3, 11)],
        ({1: "n"},),
        fails=("trace",),
        reason="shape",
        unchanged=lambda: Computes(lambda x: x * math.ceil(2.5)),
    ),
)
def symbolic_rounding(original: Callable[..., Tensor], value: object) -> Any:
    """`math.ceil`, `math.floor`, `math.trunc` of a size under trace (torch.SymFloat rounds by itself)."""
    if not (isinstance(value, Tensor) and symbolic(value)):
        return NotImplemented
    return getattr(torch, original.__name__)(value).to(torch.int64)


class _Larger(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.new_ones(max(x.shape[1], x.shape[2])) * min(x.shape[1], x.shape[2], 7)


def _oblong() -> list[tuple[Tensor]]:
    return [(torch.ones(1, *shape),) for shape in ((4, 6), (9, 3), (11, 12))]


@patch(
    "builtins.max",
    "builtins.min",
    name="symbolic-max",
    why="max() or min() of two sizes is decided at the traced size, and the other one is never used again",
    link=LINK,
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Larger,
        _oblong,
        ({1: "h", 2: "w"},),
        fails=("dynamo", "trace"),
        reason="relative error|shape",
        unchanged="fixed sizes",
    ),
)
def symbolic_max(original: Callable[..., Tensor], *args: object, **kwargs: object) -> Any:
    """`max(a, b, ...)` and `min` of sizes, decided at run time."""
    values = list(args[0]) if len(args) == 1 and isinstance(args[0], tuple | list) else list(args)
    if kwargs or len(values) < 2 or not any(symbolic(value) for value in values):
        return NotImplemented
    pick = _pick(original.__name__)
    result = values[0]
    for value in values[1:]:
        result = pick(result, value)
    return result


def _pick(name: str) -> Callable[[Any, Any], Any]:
    symbolic_pick = torch.sym_max if name == "max" else torch.sym_min
    tensor_pick = torch.maximum if name == "max" else torch.minimum

    def pick(a: object, b: object) -> Any:
        if isinstance(a, Tensor) or isinstance(b, Tensor):
            return tensor_pick(torch.as_tensor(a), torch.as_tensor(b))
        return symbolic_pick(a, b)

    return pick
