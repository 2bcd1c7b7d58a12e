"""max() and min() of sizes are computed in the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.symbolic import symbolic

LINK = "https://github.com/huggingface/transformers/issues/26790"


def _larger(x: Tensor) -> Tensor:
    share = max(x.shape[1] * 40.0 // 256, 1)  # under trace the quotient is computed by a dozen operators
    return x.new_ones(max(x.shape[1], x.shape[2])) * min(x.shape[1], x.shape[2], 7) * share


@op(
    "builtins.max",
    "builtins.min",
    name="symbolic-max",
    why="max() or min() of two sizes is decided at the traced size, and the other one is never used again",
    reason="relative error|shape",
    link=LINK,
    tries=lambda h, w: torch.ones(1, h, w),
    sizes=((4, 6), (9, 3), (11, 12)),
    case=_larger,
    unchanged="fixed sizes",
)
def symbolic_max(original: Callable[..., Tensor], *args: object, **kwargs: object) -> object:
    """Computes `max(a, b, ...)` and `min` of sizes in the graph."""
    values = list(args[0]) if len(args) == 1 and isinstance(args[0], tuple | list) else list(args)
    if kwargs or len(values) < 2 or not any(symbolic(value) for value in values):
        return NotImplemented
    # One by one: torch.sym_max and torch.maximum take two.
    pick = _pick(original.__name__)
    result = values[0]
    for value in values[1:]:
        result = pick(result, value)
    return result


def _pick(name: str) -> Callable[[Any, Any], Any]:
    symbolic_pick = torch.sym_max if name == "max" else torch.sym_min
    tensor_pick = torch.maximum if name == "max" else torch.minimum

    def pick(a: object, b: object) -> object:
        if isinstance(a, Tensor) or isinstance(b, Tensor):
            # Under trace a size is a tensor, the number beside it is not.
            return tensor_pick(torch.as_tensor(a), torch.as_tensor(b))
        return symbolic_pick(a, b)

    return pick
