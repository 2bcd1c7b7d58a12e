"""math.ceil, math.floor, math.trunc and round() of fractions of sizes stay symbolic."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.symbolic import symbolic

FROZEN = "a size becomes a constant: int(), float(), math.* or torch_int of a shape freezes the traced value"
LINK = "https://github.com/huggingface/transformers/issues/26790"


def _rounded(x: Tensor) -> Tensor:
    up, down = math.ceil(x.shape[1] / 3), math.floor(x.shape[1] / 2)
    return x.new_ones(up, down).cumsum(0)


@op(
    "math.ceil",
    "math.floor",
    "math.trunc",
    name="symbolic-rounding",
    why=FROZEN,
    reason="shape",
    link=LINK,
    exporters=("trace",),
    tries=lambda n: torch.ones(2, n),
    sizes=(6, 3, 11),
    case=_rounded,
    unchanged=lambda x: x * math.ceil(2.5),
)
def symbolic_rounding(original: Callable[..., Tensor], value: object) -> object:
    """Keeps `math.ceil`, `math.floor` and `math.trunc` symbolic under trace. torch.SymFloat rounds by itself."""
    if not (isinstance(value, Tensor) and symbolic(value)):
        return NotImplemented
    return getattr(torch, original.__name__)(value).to(torch.int64)


def _nearest(x: Tensor) -> Tensor:
    return x[:, : round(x.shape[1] * 0.55)].cumsum(1)


@op(
    "builtins.round",
    name="symbolic-round",
    why="type Tensor doesn't define __round__ method: round() of a fraction of a size",
    reason="__round__",
    link=LINK,
    exporters=("trace",),
    # Of 10 and 30, 0.55 are halves: 5.5 and 16.5 both go to the even number, 6 and 16.
    tries=lambda n: torch.ones(2, n),
    sizes=(6, 3, 10, 11, 30),
    case=_nearest,
    unchanged=lambda x: x * round(2.5),
    # The product is that patch's; in float32 its halves would not be halves.
    beside=("double-sizes",),
)
def symbolic_round(original: Callable[..., Tensor], value: object, *digits: object) -> object:
    """Rounds to the nearest whole number, halves to the even one, as Python does."""
    if digits or not isinstance(value, Tensor) or not symbolic(value):
        return NotImplemented
    return torch.round(value).to(torch.int64) if value.is_floating_point() else value
