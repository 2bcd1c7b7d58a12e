"""float.is_integer and int.bit_length of sizes, which are tensors under trace and lack these methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.symbolic import static_number

LINK = "https://docs.pytorch.org/docs/stable/generated/torch.jit.trace.html"


def _inputs() -> list[tuple[Tensor]]:
    return [(torch.arange(2.0 * n).reshape(2, n),) for n in (6, 3, 8, 9, 16)]


def _whole(x: Tensor) -> Tensor:
    """Rows that say whether their number is a multiple of 3, and channels that are one of 2."""
    pairs = 1 if (x.shape[0] / 2).is_integer() else 2
    return x * pairs + torch.as_tensor((x.shape[1] / 3).is_integer())


@op(
    "Tensor.is_integer",
    name="size-is-integer",
    why="'Tensor' object has no attribute 'is_integer': under trace a size divided by a number is a tensor",
    reason="is_integer",
    link=LINK,
    exporters=("trace",),
    tries=_inputs,
    case=_whole,
    unchanged=lambda x: x * (3 / 2).is_integer(),
)
def size_is_integer(original: Callable[[Tensor], Any], value: Tensor) -> object:
    """Whether a quotient of sizes is whole: a 0-d bool tensor, or a bool where no input changes it."""
    if value.dim():
        return NotImplemented
    known = static_number(value)
    if known is not None:
        return float(known).is_integer()
    return value == value.floor() if value.is_floating_point() else torch.ones_like(value, dtype=torch.bool)


def _doublings(x: Tensor) -> Tensor:
    """The next power of two of the number of columns."""
    return x + 2 ** (x.shape[1] - 1).bit_length()


@op(
    "Tensor.bit_length",
    name="size-bit-length",
    why="'Tensor' object has no attribute 'bit_length': under trace a size is a tensor",
    reason="bit_length",
    link=LINK,
    exporters=("trace",),
    tries=_inputs,
    case=_doublings,
    unchanged=lambda x: x * (5).bit_length(),
)
def size_bit_length(original: Callable[[Tensor], Any], value: Tensor) -> object:
    """The number of bits of a size: a 0-d int64 tensor, or an int where no input changes it."""
    if value.dim() or value.is_floating_point():
        return NotImplemented
    known = static_number(value)
    if known is not None:
        return int(known).bit_length()
    # Exact, where a logarithm would be one off next to a power of two.
    return (value.abs() >= 2 ** torch.arange(63)).sum()
