"""What tensor methods mean for numbers: while a trace runs, sizes are 0-d tensors, and their symbols are numbers."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import torch


def _converted(number: float, dtype: object = None, *_: object, **named: object) -> object:
    """`number.to(dtype)`: whole numbers end at the point, as Python's int() does."""
    dtype = named.get("dtype", dtype)
    whole = isinstance(dtype, torch.dtype) and not dtype.is_floating_point
    return math.trunc(number) if whole else number


ARITHMETIC: dict[str, Callable[..., object]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv,
    "floor_divide": operator.floordiv, "truediv": operator.truediv, "div": operator.truediv, "mod": operator.mod,
    "remainder": operator.mod, "pow": operator.pow, "neg": operator.neg, "eq": operator.eq, "ne": operator.ne,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "abs": operator.abs,
    "radd": lambda a, b: b + a, "rsub": lambda a, b: b - a, "rmul": lambda a, b: b * a,
    "rfloordiv": lambda a, b: b // a, "rtruediv": lambda a, b: b / a, "rmod": lambda a, b: b % a,
    "maximum": torch.sym_max, "minimum": torch.sym_min, "reshape": lambda a, *_: a,
    "trunc": math.trunc, "ceil": math.ceil, "floor": math.floor, "long": math.trunc, "to": _converted,
}  # fmt: skip
