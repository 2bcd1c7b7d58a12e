"""torch.arange with fractions of sizes: the number of elements is counted in float64, as torch does."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas.proof_models import Computes
from onnxpatch.formulas.symbolic import as_float, as_tensor, symbolic


class _Steps(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.arange(0, x.shape[1] * 0.1, 0.1).cumsum(0) + x.mean()


@patch(
    "torch.arange",
    name="float-ranges",
    why="torch.arange(0, n * 0.1, 0.1) has one element more or fewer at some sizes: the graph counts them in float32",
    link="https://github.com/onnx/onnx/blob/main/docs/Operators.md#Range",
    exporters=("dynamo", "trace"),
    proof=Proof(
        build=_Steps,
        # At 11 and 22, float32 counts one more.
        inputs=lambda: [(torch.randn(2, n),) for n in (10, 11, 22, 3, 70)],
        dynamic_shapes=({1: "n"},),
        fails=("dynamo", "trace"),
        reason="shape",
        beside=("double-sizes",),
        unchanged=lambda: Computes(lambda x: x + torch.arange(x.shape[0])[:, None]),
    ),
)
def float_ranges(original: Callable[..., Tensor], *bounds: Any, **kwargs: Any) -> Tensor:
    """`start + step * i` for as many i as torch counts. All bounds are numbers or computed from sizes."""
    alone = len(bounds) == 1 and kwargs.get("end") is None
    given = dict(zip(("end",) if alone else ("start", "end", "step"), bounds, strict=False))
    asked: dict[str, Any] = {"start": 0, "step": 1, **kwargs, **given}
    start, end, step = numbers = (asked["start"], asked["end"], asked["step"])
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    if not any(map(symbolic, numbers)) or not any(map(_is_fraction, numbers)) or not dtype.is_floating_point:
        return NotImplemented
    if not all(isinstance(number, int | float) or symbolic(number) for number in numbers):
        return NotImplemented  # computed from data
    length = as_float(end - start) / step
    count: Any = length.ceil().to(torch.int64) if isinstance(length, Tensor) else math.ceil(length)
    device = kwargs.get("device")
    first, by = (as_tensor(number, torch.float64, device) for number in (start, step))
    return (first + torch.arange(count, device=device) * by).to(dtype)


def _is_fraction(number: object) -> bool:
    return isinstance(number, float | torch.SymFloat) or (isinstance(number, Tensor) and number.is_floating_point())
