"""Arithmetic of a tensor with a number computed from sizes: `positions * (keys / queries)`, `indices % width`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.symbolic import symbolic
from onnxpatch.formulas.tracing import function_name

_WORDS = ("mul", "sub", "floordiv", "mod", "pow")
ARITHMETIC = {f"__{side}{word}__" for word in _WORDS for side in ("", "r", "i")} | {
    f"{name}{end}"
    for name in ("mul", "multiply", "sub", "subtract", "rsub", "floor_divide", "remainder", "pow", "clamp", "clip")
    for end in ("", "_")
}


def _relative(x: Tensor) -> tuple[Tensor, ...]:
    """Distances between rows and columns of two resolutions, scaled as in decomposed relative positions."""
    ratio = x.shape[2] / x.shape[1]
    rows = torch.arange(x.shape[1])
    return x.sum() + rows * ratio, rows % x.shape[2], rows ** x.shape[0], x.clamp(0.5, ratio)


def between(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether a call under torch.export combines a tensor with a symbolic number."""
    if function_name(function) not in ARITHMETIC or "out" in kwargs:
        return False
    given = (*args, *kwargs.values())
    return any(symbolic(value) for value in given) and any(isinstance(value, Tensor) for value in given)


@op(
    "torch.*",
    name="symbolic-scalars",
    why="float() argument must be a string or a real number, not 'SymbolicTensor'; and integers ** size are floats",
    reason=r"float\(\) argument must be|SymbolicTensor",
    link="https://github.com/pytorch/pytorch/issues/153115",
    exporters=("dynamo",),
    calls=between,
    # Ratios above 1 and below.
    tries=lambda b, h, w: torch.rand(b, h, w),
    sizes=((2, 4, 6), (3, 7, 5), (1, 2, 9)),
    case=_relative,
    unchanged="fixed sizes",
)
def symbolic_scalars(original: Callable[..., Tensor], *args: object, **kwargs: object) -> Tensor:
    """Makes the call with a 0-d tensor for the number. Like a number, it does not promote the other operand's dtype."""
    name = function_name(original)
    both = name.startswith("cl")  # clamp takes two numbers or two tensors, not one of each
    data = next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
    tensors = [_tensor(value, data, both and place > 0) for place, value in enumerate(args)]
    if name.strip("_").endswith("pow") and len(tensors) == 2:  # ONNX's Pow returns the dtype of its base
        common = torch.result_type(*tensors)
        tensors = [value.to(common) for value in tensors]
    return original(*tensors, **{key: _tensor(value, data, both) for key, value in kwargs.items()})


def _tensor(value: Any, data: Tensor, also_numbers: bool) -> Any:
    if symbolic(value) or (also_numbers and isinstance(value, int | float)):
        whole = isinstance(value, int | torch.SymInt)
        dtype = torch.int64 if whole else torch.get_default_dtype()
        # Of two tensors of shape () the wider dtype is the result's; a number has none.
        return torch.scalar_tensor(value, dtype=dtype if data.dim() else torch.result_type(data, 1 if whole else 1.0))
    return value
