"""Fractions of sizes in double precision, as Python computes them: `int(n * 0.29)`, `ceil(n / 3)`, `n // 0.7`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.elementary import floor_quotient, floor_rest
from onnxpatch.formulas.symbolic import as_float, function_name, symbolic, traced_from_sizes

_COMPUTED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "truediv": torch.true_divide, "div": torch.true_divide,
    "floordiv": floor_quotient, "floor_divide": floor_quotient, "mod": floor_rest, "remainder": floor_rest,
    "pow": torch.pow,
}  # fmt: skip
_ARITHMETIC = {*_COMPUTED, *(f"r{word}" for word in _COMPUTED)}
_DIVISIONS = ("truediv", "rtruediv", "div", "rdiv")


def _shares(x: Tensor) -> tuple[Tensor, ...]:
    """Parts of a length, rounded every way."""
    n = x.shape[1]
    up, down = math.ceil(n * 0.3), int(n * 0.29)
    return x[:, :up], x[:, : down + 1], x.new_zeros(int(n // 0.7)), x.new_ones(int(n / 0.7 + 1)), x * n**-1


def _in_double(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether a call computes a fraction from sizes and numbers alone, which float32 would round."""
    name = function_name(function).strip("_")
    if name not in _ARITHMETIC or len(args) != 2 or kwargs or not all(_is_number(one) for one in args):
        return False
    if name == "pow" and isinstance(args[1], int) and args[1] < 0:  # torch refuses it for whole numbers
        return isinstance(args[0], Tensor) and traced_from_sizes(args[0])
    # Whole numbers are exact in int64, and left alone.
    if name not in _DIVISIONS and not any(_is_fraction(one) for one in args):
        return False
    return _are_from_sizes([one for one in args if isinstance(one, Tensor)])


def _are_from_sizes(tensors: Sequence[Tensor]) -> bool:
    # Data of shape () is no number, `x.sum() / n` keeps its dtype: float64 alone is what eager gives as well.
    return all(one.dtype == torch.float64 or traced_from_sizes(one) for one in tensors) and any(map(symbolic, tensors))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) or (isinstance(value, Tensor) and not value.dim())


def _is_fraction(value: object) -> bool:
    return value.is_floating_point() if isinstance(value, Tensor) else isinstance(value, float)


@op(
    "torch.*",
    name="double-sizes",
    why="int(n * 0.29) and ceil(n * 0.3) are computed in float32, and come out one off at some sizes; "
    "n ** -1: Integers to negative integer powers are not allowed",
    reason="shape|negative integer powers",
    link="https://github.com/pytorch/pytorch/issues/74459",
    exporters=("trace",),
    calls=_in_double,
    # Sizes at which float32 and float64 round apart: 100 * 0.29 is 28.999… in Python, and 29.0 in float32.
    tries=lambda n: torch.randn(1, n, 2),
    sizes=(8, 7, 14, 20, 50, 57, 58, 100, 200),
    case=_shares,
    unchanged=lambda: torch.nn.Linear(2, 3),
    # This patch computes the fraction; int() and math.ceil of it are theirs.
    beside=("symbolic-int", "symbolic-rounding"),
)
def double_sizes(original: Callable[..., Tensor], *args: object) -> Tensor:
    """Computes in float64, on tensors of shape (1,): the exporter writes numbers of shape () as float32."""
    numbers = [_in_float64(one) for one in args]
    word = function_name(original).strip("_")
    if word not in _COMPUTED:  # `0.3 * n`
        # `__rmul__` gets the size first, whatever the order in the model was.
        word, numbers = word[1:], numbers[::-1]
    return _COMPUTED[word](*numbers).reshape(())


def _in_float64(number: object) -> Tensor:
    return as_float(number).reshape(1) if isinstance(number, Tensor) else torch.tensor([number], dtype=torch.float64)
