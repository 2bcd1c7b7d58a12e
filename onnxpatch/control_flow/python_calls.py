"""Answers Python's own calls while a model is exported with its branches: the number stays in the graph.

    int(t)                     a SymInt under dynamo, t.to(torch.int64) under trace
    max(a, b)                  torch.maximum, or torch.sym_max for sizes
    isinstance(size, int)      True, as in eager
    range(x.shape[0])          `loops.rows.Rows`, which becomes a loop of the graph; so do enumerate(x) and zip(x, y),
                               and these and reversed(...) of a list that a loop has filled
    len(x)                     x.shape[0]
    torch.LongTensor([n, 2])   a stack of n and 2: a class and no function, it would take the value out of n

Each function gets the capture, the builtin and its arguments. Where it returns NotImplemented, patches are asked.
Constructors of tensors are seen by no TorchFunctionMode. While branches are exported, the name `torch` in the modules
that define the model is a proxy of the module torch that differs in these only; a `Tensor` imported by name is
exchanged as well. Called without tensors in a list, a constructor is torch's own.
"""

from __future__ import annotations

import builtins
import functools
import types
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import torch

from onnxpatch.control_flow.capture import Capture, as_number, static_dim, static_value
from onnxpatch.control_flow.loops.rows import FilledList, Rows, rows_filled
from onnxpatch.control_flow.pytrees import Unbound, has_graph_number, of_one_dtype, stacked_numbers
from onnxpatch.control_flow.recording import running
from onnxpatch.decisions.functions_run import iterated, subscripting
from onnxpatch.formulas.symbolic import one_step
from onnxpatch.patching import rebinding
from onnxpatch.patching.code_places import Place
from onnxpatch.patching.rebinding import passing_for

Function = Callable[..., object]
_SYMBOLIC = (torch.SymInt, torch.SymFloat)
_MAX = builtins.max  # while torch.export runs a model, the name is one of torch's functions
# torch.Tensor alone has the default dtype of the moment.
_DTYPES: dict[str, torch.dtype | None] = {
    "Tensor": None, "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "LongTensor": torch.int64,
    "IntTensor": torch.int32, "BoolTensor": torch.bool, "HalfTensor": torch.float16,
}  # fmt: skip


def _int(capture: Capture, function: Function, value: object = 0, *base: object) -> object:
    # Python's int() would fix the size at the example's.
    if isinstance(value, torch.SymInt):
        return value
    # With a base, as in int("ff", 16), it reads text.
    if not isinstance(value, torch.Tensor) or base:
        return NotImplemented
    whole = value if not value.dtype.is_floating_point else value.trunc()
    return as_number(capture, whole.to(torch.int64))


def _float(capture: Capture, function: Function, value: object = 0.0) -> object:
    if isinstance(value, _SYMBOLIC):
        return torch.sym_float(value)
    if not isinstance(value, torch.Tensor):
        return NotImplemented
    # float() takes one element in any shape, as [1, 1].
    number = value.reshape(()) if value.dim() else value
    return number if number.dtype.is_floating_point else number.to(torch.get_default_dtype())


def _len(capture: Capture, function: Function, value: object) -> object:
    rows = _rows_in(capture, value) if isinstance(value, FilledList | Unbound) else value
    capture.check_len(value if rows is None else rows)
    return rows.shape[0] if isinstance(rows, torch.Tensor) and rows.dim() else NotImplemented


def _round(capture: Capture, function: Function, value: object, digits: int | None = None) -> object:
    # torch rounds half to even, as Python does.
    if not isinstance(value, torch.Tensor):
        return NotImplemented
    return as_number(capture, value.round().to(torch.int64)) if digits is None else value.round(decimals=digits)


def _extreme(capture: Capture, function: Function, *values: object, **kwargs: object) -> object:
    """`max` or `min` of values, or of one list of them, where any is a tensor or a symbolic number."""
    listed = list(values[0]) if len(values) == 1 and isinstance(values[0], list | tuple) else list(values)
    # max(t) of one tensor goes over its rows: a loop of Python, not this hook.
    if kwargs or len(listed) < 2 or not any(isinstance(value, (torch.Tensor, *_SYMBOLIC)) for value in listed):
        return NotImplemented
    if any(isinstance(value, torch.Tensor) for value in listed):
        return functools.reduce(torch.maximum if function is _MAX else torch.minimum, of_one_dtype(listed))
    return functools.reduce(torch.sym_max if function is _MAX else torch.sym_min, listed)


def _isinstance(capture: Capture, function: Function, value: object, classes: Any) -> object:
    number = {torch.SymInt: 0, torch.SymFloat: 0.0}.get(type(value))
    return True if number is not None and isinstance(number, classes) else NotImplemented


def _range(capture: Capture, function: Function, *bounds: object) -> object:
    dynamic = any(isinstance(b, torch.Tensor | torch.SymInt) and static_value(capture, b) is None for b in bounds)
    # `range(n)[i]` asks for one number, and is no loop; nor is a range of one round, which a patch answers.
    if not dynamic or subscripting() or one_step(bounds):
        return NotImplemented
    first = 0 if len(bounds) == 1 else bounds[0] if len(bounds) == 2 and type(bounds[0]) is int else None
    return Rows(capture, capture.execute(torch.arange, bounds, {"dtype": torch.int64}), counts=True, first=first)


def _enumerate(capture: Capture, function: Function, values: object, start: int = 0) -> object:
    # Of a known number of rows Python's own enumerate runs, which unrolls them.
    rows = _rows_in(capture, values)
    return NotImplemented if rows is None else Rows(capture, rows, start=start)


def _zip(capture: Capture, function: Function, *values: object, **strict: object) -> object:
    """The rows of several tensors side by side, as many as the fewest."""
    rows = [tensor for value in values if (tensor := _rows_in(capture, value)) is not None]
    if not rows or len(rows) < len(values):
        return NotImplemented
    count = (
        _extreme(capture, builtins.min, *(tensor.shape[0] for tensor in rows)) if len(rows) > 1 else rows[0].shape[0]
    )
    return Rows(capture, capture.execute(torch.arange, (count,), {"dtype": torch.int64}), beside=rows)


def _reversed(capture: Capture, function: Function, values: object) -> object:
    """The rows of a list from the last on. A tensor and a range turn themselves round."""
    rows = _rows_in(capture, values) if isinstance(values, list | Unbound) else None
    return NotImplemented if rows is None else reversed(Rows(capture, rows))


def _split(
    capture: Capture, function: Function, tensor: torch.Tensor, size: object, dim: int = 0, **named: object
) -> object:
    """The pieces of an axis, where their number depends on the input and a `for` takes them."""
    axis = dim % max(tensor.dim(), 1)
    if named or type(size) is not int or not tensor.dim() or static_dim(capture, tensor, axis) is not None:
        return NotImplemented
    if size < 1 or not iterated():
        return NotImplemented
    starts = capture.execute(torch.arange, (0, tensor.shape[axis], size), {"dtype": torch.int64})
    return Rows(capture, starts, counts=True, cut=(tensor, size, axis))


def _rows_in(capture: Capture, value: Any) -> torch.Tensor | None:
    """The tensor whose rows a value gives, where their number depends on the input; None for other values."""
    if isinstance(value, Unbound):
        return value.whole
    if isinstance(value, list):
        return rows_filled(capture, value)
    dynamic = isinstance(value, torch.Tensor) and value.dim() and static_dim(capture, value, 0) is None
    return value if dynamic else None


SPLITS: dict[Function, Function] = {torch.split: _split, torch.Tensor.split: _split}

BUILTINS: dict[Function, Function] = {
    builtins.int: _int,
    builtins.float: _float,
    builtins.len: _len,
    builtins.round: _round,
    builtins.max: _extreme,
    builtins.min: _extreme,
    builtins.isinstance: _isinstance,
    builtins.range: _range,
    builtins.enumerate: _enumerate,
    builtins.zip: _zip,
    builtins.reversed: _reversed,
}


def torch_exchanged(model_modules: Iterable[ModuleType]) -> list[rebinding.Substitution]:
    """The proxy and the constructors, for every name of torch, or of one of its constructors, in the modules."""
    proxy = _TorchProxy()
    replacements: dict[int, object] = {id(torch): proxy}
    replacements.update((id(getattr(torch, name)), getattr(proxy, name)) for name in _DTYPES)
    found: list[rebinding.Substitution] = []
    for module in model_modules:
        for name, value in vars(module).copy().items():
            if id(value) in replacements:
                found.append(_Exchange(value, (module, name), replacements[id(value)]))
    return found


class _Exchange(rebinding.Substitution):
    """Puts a ready-made object in one place; the base class would wrap a function."""

    def __init__(self, original: object, place: Place, substitute: Any) -> None:
        self.original, self.places, self.substitute = original, [place], substitute


class _TorchProxy(types.ModuleType):
    """The module torch, with other constructors. What is set on it is set on torch."""

    def __init__(self) -> None:
        super().__init__("torch", torch.__doc__)
        for name in _DTYPES:
            setattr(self, name, _constructor(name))

    def __getattr__(self, name: str) -> object:
        return getattr(torch, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in _DTYPES:
            super().__setattr__(name, value)
        else:
            setattr(torch, name, value)

    def __dir__(self) -> list[str]:
        return dir(torch)


def _constructor(name: str) -> type:
    """A class that passes for `torch.<name>` in isinstance, comparison and attribute access."""
    original: type = getattr(torch, name)

    class Constructor(passing_for(original)):  # type: ignore[misc]
        def __call__(cls, *args: object, **kwargs: object) -> object:
            return _construct(original, _DTYPES[name], args, kwargs)

        def __getattr__(cls, attribute: str) -> object:
            return getattr(original, attribute)

    return Constructor(name, (), {"__module__": "torch"})


def _construct(
    original: Callable[..., object], dtype: torch.dtype | None, args: tuple[object, ...], kwargs: dict[str, object]
) -> object:
    capture = running()
    if capture is None or not capture.explorers or kwargs or not args:
        return original(*args, **kwargs)
    kind = torch.get_default_dtype() if dtype is None else dtype
    if len(args) == 1 and isinstance(args[0], list | tuple) and has_graph_number(args[0]):
        return stacked_numbers(args[0], kind)
    # torch.Tensor(2, 3) has sizes for arguments, not values: what is in it is not set.
    if len(args) > 1 and has_graph_number(args):
        sizes: Any = args
        return torch.empty(sizes, dtype=kind)
    return original(*args, **kwargs)
