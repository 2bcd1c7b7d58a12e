"""int(), float() and len() of sizes, and transformers' torch_int and torch_float, stay symbolic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.symbolic import as_float, symbolic, truncated

FROZEN = "a size becomes a constant: int(), float(), math.* or torch_int of a shape freezes the traced value"
LINK = "https://github.com/huggingface/transformers/issues/26790"


def _square_grid(tokens: Tensor) -> Tensor:
    """Tokens back to a square image, the side computed from their number."""
    side = int(tokens.shape[1] ** 0.5)
    return tokens.transpose(1, 2).reshape(tokens.shape[0], -1, side, side).cumsum(-1)


@op(
    "builtins.int",
    "transformers.utils.torch_int",
    name="symbolic-int",
    why=FROZEN,
    reason="cannot be reshaped",
    link=LINK,
    tries=lambda b, n: torch.randn(b, n, 3),
    # 1369 is 37 * 37: a root that comes out a little below 37 would make 36 of it.
    sizes=((2, 16), (3, 4), (1, 49), (2, 1369)),
    case=_square_grid,
    unchanged="fixed sizes",
)
def symbolic_int(original: Callable[..., Tensor], *args: object, **kwargs: object) -> object:
    """Keeps `int(size)` symbolic. Anything else goes to Python's int."""
    # int(text, base) and keywords are no conversions of a size.
    if len(args) == 1 and not kwargs and symbolic(args[0]):
        return truncated(args[0])
    return NotImplemented


def _share(x: Tensor) -> Tensor:
    """Every value as a share of the number of rows."""
    return x / float(x.shape[1] // 2 + 1)


@op(
    "builtins.float",
    "transformers.utils.torch_float",
    name="symbolic-float",
    why=FROZEN,
    reason="relative error",
    link=LINK,
    tries=lambda n: torch.ones(2, n),
    sizes=(6, 3, 11),
    case=_share,
    unchanged="fixed sizes",
)
def symbolic_float(original: Callable[..., Tensor], *args: object, **kwargs: object) -> object:
    """Keeps `float(size)` symbolic."""
    if len(args) == 1 and not kwargs and symbolic(args[0]):
        return as_float(args[0])
    return NotImplemented


def _tiled(x: Tensor) -> Tensor:
    return x + torch.arange(x.shape[1]).repeat(len(x), 1)


@op(
    "builtins.len",
    name="symbolic-len",
    why="Using len to get tensor shape might cause the trace to be incorrect: the batch of the example stays",
    reason="shape",
    link=LINK,
    fails=("trace",),  # dynamo is right without it, and must stay so
    tries=lambda b, n: torch.ones(b, n),
    sizes=((3, 4), (1, 2), (5, 7)),
    case=_tiled,
    unchanged="fixed sizes",
)
def symbolic_len(original: Callable[[Any], int], value: object) -> object:
    """Keeps `len(tensor)` symbolic."""
    return value.shape[0] if isinstance(value, Tensor) and value.dim() else NotImplemented
