"""What tensor methods mean for numbers: while a trace runs, sizes are 0-d tensors, and their symbols are numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch

ARITHMETIC: dict[str, Callable[..., object]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv,
    "floor_divide": operator.floordiv, "truediv": operator.truediv, "div": operator.truediv, "mod": operator.mod,
    "remainder": operator.mod, "pow": operator.pow, "neg": operator.neg, "eq": operator.eq, "ne": operator.ne,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "abs": operator.abs,
    "radd": lambda a, b: b + a, "rsub": lambda a, b: b - a, "rmul": lambda a, b: b * a,
    "rfloordiv": lambda a, b: b // a, "rtruediv": lambda a, b: b / a, "rmod": lambda a, b: b % a,
    "maximum": torch.sym_max, "minimum": torch.sym_min, "reshape": lambda a, *_: a, "trunc": lambda a: a,
    "to": lambda a, *_, **__: a, "long": lambda a: a,
}  # fmt: skip
