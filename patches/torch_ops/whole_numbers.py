"""`|`, `^` and `~` of whole numbers, by `&`, which ONNX has from opset 18 on and the trace exporter too."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.tries import integers


def _pairs(b: int, n: int) -> tuple[Tensor, Tensor]:
    return integers(b, n), integers(b, n)


def _whole(*operands: Any) -> bool:
    return all(isinstance(x, Tensor) and not x.is_floating_point() and x.dtype != torch.bool for x in operands)


def _either(x: Any, y: Any) -> Tensor:
    x, y = (one if isinstance(one, Tensor) else torch.full_like(other, one) for one, other in ((x, y), (y, x)))
    return x + y - torch.bitwise_and(x, y) if _whole(x, y) else NotImplemented


def _one(x: Any, y: Any) -> Tensor:
    found = _either(x, y)
    return found if found is NotImplemented else found - torch.bitwise_and(x, y)


_NOT = "ONNX export does NOT support exporting bitwise OR for non-boolean input values"
op("bitwise_or", "Tensor.__or__", "Tensor.__ror__", why=_NOT, reason="bitwise OR", exporters=("trace",), tries=_pairs,
   case=lambda x, y: (x | y, x | 5, 6 | y, torch.bitwise_or(x, y)), to=_either)  # fmt: skip
op("bitwise_xor", "Tensor.__xor__", "Tensor.__rxor__", why=_NOT.replace("OR", "XOR"), reason="bitwise XOR",
   exporters=("trace",), tries=_pairs, case=lambda x, y: (x ^ y, x ^ 5, 6 ^ y, x.bitwise_xor(y)), to=_one)  # fmt: skip


@op(
    "bitwise_not",
    "Tensor.__invert__",
    why=_NOT.replace("OR", "Not"),
    reason="bitwise Not",
    exporters=("trace",),
    tries=_pairs,
    case=lambda x, y: (~x, torch.bitwise_not(y), y.to(torch.int32).bitwise_not()),
)
def bitwise_not(input: Tensor) -> Tensor:
    """All bits turned: -1 - x."""
    if not _whole(input):
        return NotImplemented
    return torch.full_like(input, 255 if input.dtype == torch.uint8 else -1) - input
