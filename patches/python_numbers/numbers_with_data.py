"""Fractions of sizes beside data of shape (), `x.sum() / (n * 0.5)`: the number leaves the data its dtype, as in eager.

In eager the size is a Python number, which never widens a tensor. Under trace it is a float64 tensor of shape (), and
two tensors of that shape are computed in the wider dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.symbolic import symbolic
from onnxpatch.formulas.tracing import function_name

_WORDS = {
    "add", "sub", "subtract", "mul", "multiply", "div", "divide", "truediv", "true_divide", "floordiv", "floor_divide",
    "mod", "remainder", "pow",
}  # fmt: skip
_WORDS |= {f"r{word}" for word in _WORDS}


class _Means(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(1, 2)

    def forward(self, x: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        n = x.shape[0]
        # The layer takes float32 alone.
        mean = self.linear((x.sum() / (n * 0.5)).reshape(1))
        return mean, math.sqrt(n) * x.amax(), x.amin() - n / 3, ids * (n / 2)


def _widened(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether a fraction of sizes gives the data beside it another dtype than a Python number does."""
    if function_name(function).strip("_") not in _WORDS or len(args) != 2:
        return False
    tensors = [one for one in args if isinstance(one, Tensor)]
    wide = [one.dtype == torch.float64 and not one.dim() for one in tensors]
    if len(tensors) != 2 or not any(wide):
        return False
    number, data = tensors if wide[0] and symbolic(tensors[0]) else tensors[::-1]
    if torch.result_type(number, data) == torch.result_type(data, 1.0) or not symbolic(number):
        return False
    return not symbolic(data)


@op(
    "torch.*",
    name="numbers-with-data",
    why="x.sum() / (n * 0.5): a fraction of sizes is a float64 tensor under trace, and makes float64 of a float32 sum; "
    "a Linear behind it stops with: mat1 and mat2 must have the same dtype, but got Double and Float",
    reason="same dtype|float64",
    link="https://github.com/pytorch/pytorch/issues/74459",
    exporters=("trace",),
    calls=_widened,
    tries=lambda n: (torch.randn(n, 3), torch.arange(1, n)),
    sizes=(4, 7, 2),
    case=_Means,
    # Without them there are no fractions in float64.
    unchanged=lambda x, ids: x.sum() / x.shape[0] + ids * x.shape[1],
    beside=("double-sizes", "symbolic-sqrt"),
)
def numbers_with_data(original: Callable[..., Tensor], left: Tensor, right: Tensor) -> Tensor:
    """Rounds the number to the dtype in which eager computes."""
    if left.dtype == torch.float64 and not left.dim() and symbolic(left):
        return original(left.to(torch.result_type(right, 1.0)), right)
    return original(left, right.to(torch.result_type(left, 1.0)))
