"""The shapes of a running trace's values: read off its graph, or from an operator that runs on fake tensors.

`reshape(batch, n, 3, heads, width)` has a 3 in it. Running the graph on fake tensors tells every size
(`traced_sizes.py`), and takes seconds for a deep model; attention needs that 3 in each layer. This reads nodes, their
inputs and `toIValue`. If these move, nothing is read off, and the graph is run. `result_shape` names the shape of a
result whose operator's arguments say it, which torch's own kernels for symbolic sizes take tens of milliseconds for.

A model of sixty equal layers has sixty times the same operators. `FakeResults` runs each once for all arguments of the
same shape: fake tensors of one shape, stride and dtype are one object in it. Shapes are compared by
`SymInt.node.expr`, the sympy expression of a size. If that moves, nothing is shared, and every call runs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from onnxpatch._torch.cond import free_symbols

_ATEN = torch.ops.aten
_SHAPED = ("aten::reshape", "aten::view")
_KEEPING = ("aten::contiguous", "aten::detach", "aten::clone", "aten::dropout")
_WIDTHS = {"aten::linear": (1, 0), "aten::embedding": (0, 1)}  # which axis of which operand the last one is
_ELEMENTWISE = tuple(f"aten::{name}" for name in (
    "add", "sub", "mul", "div", "pow", "neg", "rsqrt", "sqrt", "exp", "tanh", "sigmoid", "relu", "gelu", "silu", "to",
))  # fmt: skip
_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout)


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


class _UnsharedError(Exception):
    """A value that must not be taken for another one."""


class FakeResults:
    """The fake tensors of one trace, by shape, and the results of its operators, by arguments."""

    def __init__(self) -> None:
        self._tensors: dict[Hashable, torch.Tensor] = {}
        self._results: dict[Hashable, list[Any]] = {}

    def results(
        self, operator: object, args: list[object], kwargs: dict[str, object], run: Callable[[], object]
    ) -> list[Any]:
        """The results of an operator: those of an equal call, or else those of `run()`."""
        try:
            key = (operator, tuple(map(self._key, args)), tuple((name, self._key(one)) for name, one in kwargs.items()))
        except _UnsharedError:
            return _listed(run())
        if key not in self._results:
            results = [self.tensor(one) for one in _listed(run())]
            # A size that the data decide (of `nonzero`) is another one at every call, however equal the arguments.
            try:
                if not _symbols(results) <= _symbols([*args, *kwargs.values()]):
                    return results
            except AttributeError:  # sizes that cannot be compared
                return results
            self._results[key] = results
        return self._results[key]

    def tensor(self, value: Any) -> Any:
        """The first fake tensor of this shape, stride and dtype; what is no tensor, or has a known content, itself."""
        try:
            return self._tensors.setdefault(_shape_key(value), value)
        except _UnsharedError:
            return value

    def _key(self, value: object) -> Hashable:
        if isinstance(value, torch.Tensor):
            if self.tensor(value) is not value:
                raise _UnsharedError
            return id(value)  # both tables keep it alive
        if isinstance(value, _PLAIN):
            return (type(value), value)
        if isinstance(value, list | tuple):
            return tuple(map(self._key, value))
        return _expression(value)


def _shape_key(value: object) -> Hashable:
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        raise _UnsharedError
    if getattr(value, "constant", None) is not None:  # a FakeTensor's, whose content is known
        raise _UnsharedError
    sizes = (*map(_expression, value.shape), *map(_expression, value.stride()))
    return (value.dtype, value.device, value.dim(), sizes)


def _expression(size: Any) -> Hashable:
    if isinstance(size, int):
        return size
    try:
        expression: Hashable = size.node.expr
    except AttributeError:
        raise _UnsharedError from None
    return expression


def _symbols(values: list[object]) -> set[Any]:
    """The symbols in sizes and in shapes."""
    found: set[Any] = set()
    for value in values:
        inner = value.shape if isinstance(value, torch.Tensor) else value
        for one in inner if isinstance(inner, list | tuple) else (inner,):
            if isinstance(one, torch.Tensor | list | tuple):
                found |= _symbols([one])
            else:
                found |= free_symbols(one)
    return found


def _listed(made: object) -> list[object]:
    return list(made) if isinstance(made, tuple) else [made]
