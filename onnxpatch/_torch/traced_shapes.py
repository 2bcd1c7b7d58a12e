"""The shapes of a running trace's values: read off its graph, or from an operator that runs on fake tensors.

`reshape(batch, n, 3, heads, width)` has a 3 in it. Running the graph on fake tensors tells every size
(`traced_sizes.py`), and takes seconds for a deep model; attention needs that 3 in each layer. This reads nodes, their
inputs and `toIValue`. If these move, nothing is read off, and the graph is run. `result_shape` names the shape of a
result whose operator's arguments say it, which torch's own kernels for symbolic sizes take tens of milliseconds for.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

_ATEN = torch.ops.aten
_SHAPED = ("aten::reshape", "aten::view")
_KEEPING = ("aten::contiguous", "aten::detach", "aten::clone", "aten::dropout")
_WIDTHS = {"aten::linear": (1, 0), "aten::embedding": (0, 1)}  # which axis of which operand the last one is
_ELEMENTWISE = tuple(f"aten::{name}" for name in (
    "add", "sub", "mul", "div", "pow", "neg", "rsqrt", "sqrt", "exp", "tanh", "sigmoid", "relu", "gelu", "silu", "to",
))  # fmt: skip


def declared_size(node: Any, fixed: Callable[[Any, int], int | None]) -> int | None:
    """The result of an `aten::size` node with an axis, if it is the same for all inputs and stands in the graph.

    fixed: the size of an axis of one of the graph's own inputs, if that never changes.
    """
    operands = list(node.inputs())
    axis = _number(operands[1]) if len(operands) == 2 else None
    return declared_extent(operands[0], axis, fixed)


def declared_extent(value: Any, axis: int | None, fixed: Callable[[Any, int], int | None]) -> int | None:
    """The size of an axis of a value, in the same sense."""
    while axis is not None:
        rank = value.type().dim()
        if rank is None:
            return None
        axis += rank if axis < 0 else 0
        if (size := fixed(value, axis)) is not None:
            return size
        maker = value.node()
        kind, given = maker.kind(), list(maker.inputs())
        if kind in _SHAPED:
            return _size_at(given[1], axis)
        if kind in _WIDTHS and axis == rank - 1:
            operand, axis = _WIDTHS[kind]
            return fixed(given[operand], axis)
        if kind in _ELEMENTWISE:
            given = _as_wide(given, value, axis)
        if kind == "prim::ListUnpack" and (parts := given[0].node()).kind() == "aten::unbind":
            kind, given = "aten::unbind", list(parts.inputs())
        value, axis = given[0] if given else None, _before(kind, given, axis, rank)
    return None


def _as_wide(given: Sequence[Any], value: Any, axis: int) -> list[Any]:
    """The operands of a value that give it the size of an axis: those that are not stretched to it."""
    sizes = value.type().sizes()
    if sizes is None or sizes[axis] == 1:  # or they are all 1 in the example alone
        return []
    shapes = ((one, one.type().sizes() if isinstance(one.type(), torch.TensorType) else None) for one in given)
    return [one for one, shape in shapes if shape and len(shape) == len(sizes) and shape[axis] == sizes[axis]]


def _size_at(sizes: Any, axis: int) -> int | None:
    """One of the sizes that a reshape is given; None where it is computed or inferred."""
    listed = list(sizes.node().inputs()) if sizes.node().kind() == "prim::ListConstruct" else []
    size = _number(listed[axis]) if axis < len(listed) else None
    return size if size is not None and size >= 0 else None


def _before(kind: str, given: Sequence[Any], axis: int, rank: int) -> int | None:
    """Which axis of an operator's first argument an axis of its result is; None where that is not known."""
    if kind == "aten::permute":
        order = _numbers(given[1])
        return order[axis] if order is not None else None
    if kind == "aten::transpose":
        return _exchanged(axis, rank, _number(given[1]), _number(given[2]))
    if kind in ("aten::unbind", "aten::select"):
        gone = _number(given[1])
        return None if gone is None else axis + (gone % (rank + 1) <= axis)
    return axis if kind in _KEEPING or (given and kind in _ELEMENTWISE) else None


def _exchanged(axis: int, rank: int, first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return None
    first, second = first % rank, second % rank
    return {first: second, second: first}.get(axis, axis)


def _number(value: Any) -> int | None:
    """A constant whole number, else None."""
    found = value.toIValue() if value.node().kind() == "prim::Constant" else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _numbers(value: Any) -> list[int] | None:
    """A list of constant whole numbers, else None."""
    if value.node().kind() != "prim::ListConstruct":
        found = value.toIValue() if value.node().kind() == "prim::Constant" else None
        return found if isinstance(found, list) else None
    numbers = [_number(one) for one in value.node().inputs()]
    return [one for one in numbers if one is not None] if None not in numbers else None


def _converted(number: float, dtype: object = None, *_: object, **named: object) -> object:
    """`number.to(dtype)`: whole numbers end at the point, as Python's int() does. In a graph a dtype is a number, of
    which 0 to 4 are whole."""
    dtype = named.get("dtype", dtype)
    whole = dtype in range(5) or (isinstance(dtype, torch.dtype) and not dtype.is_floating_point)
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


def result_shape(operator: object, args: Sequence[object]) -> list[Any] | None:
    """The shape of an operator's one result, which has the dtype of its first argument; None if it is not known here.

    args: the positional arguments, with fake tensors for tensors.
    """
    shape = _SHAPES.get(operator)
    return None if shape is None else shape(*args)


def _reshaped(x: torch.Tensor, sizes: Sequence[Any]) -> list[Any] | None:
    if not all(isinstance(size, int | torch.SymInt) for size in sizes):
        return None
    inferred = [place for place, size in enumerate(sizes) if isinstance(size, int) and size == -1]
    shape = list(sizes)
    for place in inferred:
        shape[place] = x.numel() // math.prod(size for other, size in enumerate(sizes) if other != place)
    return shape


def _flattened(x: torch.Tensor, first: int, last: int) -> list[Any] | None:
    if not x.dim():
        return None
    first, last = first % x.dim(), last % x.dim()
    return [*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :]]


def _projected(x: torch.Tensor, weight: torch.Tensor, bias: object = None) -> list[Any] | None:
    return [*x.shape[:-1], weight.shape[0]] if weight.dim() == 2 else None


def _same(x: torch.Tensor, *_: object) -> list[object]:
    return list(x.shape)


_SHAPES: dict[Any, Callable[..., list[Any] | None]] = {
    _ATEN.reshape.default: _reshaped,
    _ATEN.view.default: _reshaped,
    _ATEN.flatten.using_ints: _flattened,
    _ATEN.linear.default: _projected,
    _ATEN.contiguous.default: _same,
    _ATEN.dropout.default: _same,
    _ATEN.gelu.default: _same,
    _ATEN.layer_norm.default: _same,
}
