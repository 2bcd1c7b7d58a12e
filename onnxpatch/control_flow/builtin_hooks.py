"""Replaces `int`, `float`, `len`, `round`, `max`, `min`, `range`, `enumerate` in the user's modules during an export.

Python's builtins turn tensors into plain numbers before torch can see it. Each has a hook that keeps them in the graph:

    int(t)                 a SymInt under dynamo, t.to(torch.int64) under trace
    max(a, b)              torch.maximum, or torch.sym_max for sizes
    range(x.shape[0])      `loops.rows.Rows`, which becomes a loop of the graph
    len(x)                 x.shape[0]

The names are exchanged in the modules that define the model's classes, and only in threads where a capture runs do the
hooks act. A hook that returns NotImplemented leaves the call to the patches of the user's functions, or to Python.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch

from onnxpatch.control_flow import constructors
from onnxpatch.control_flow.capture import Capture
from onnxpatch.control_flow.current_capture import running
from onnxpatch.control_flow.loops.rows import NumberedRows, Rows
from onnxpatch.control_flow.stacked_numbers import as_tensor, full_scalar
from onnxpatch.control_flow.static_values import static_dim, static_value
from onnxpatch.control_flow.symbolic_numbers import as_number
from onnxpatch.decisions.instructions import subscripting
from onnxpatch.formulas.symbolic import one_step
from onnxpatch.patching import rebinding, runtime
from onnxpatch.patching.code_modules import defining_modules
from onnxpatch.undone import undone

Function = Callable[..., object]
_SYMBOLIC = (torch.SymInt, torch.SymFloat)


def prepared(model: torch.nn.Module) -> list[rebinding.Substitution]:
    """Where the hooks will go. Call it before the export: torch.export exchanges builtins of its own."""
    classes = {type(module) for module in model.modules()}
    originals = [(f"builtins.{getattr(function, '__name__', '')}", function) for function in _HOOKS]
    found = rebinding.substitutions(model, originals, classes, runtime.lookup)
    return found + constructors.substitutions(list(defining_modules(classes)))


@contextmanager
def hooks_installed(substitutions: Sequence[rebinding.Substitution]) -> Iterator[None]:
    """The hooks act inside the block, in this thread."""
    scope = _HookScope(runtime.current())
    before = runtime._active.scopes
    with rebinding.installed(substitutions), undone(lambda: setattr(runtime._active, "scopes", before)):
        # Innermost, so that the hooks are asked before the patches of the model's own scope.
        runtime._active.scopes = [*before, scope]
        yield


class _HookScope(runtime.Scope):
    """The innermost scope of the thread, which answers calls with the hooks below; other scopes answer the rest."""

    def __init__(self, outer: runtime.Scope | None) -> None:
        self._outer = outer
        if outer is not None:
            super().__init__(outer.settings, outer._paths)

    def answer(self, function: Function, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """The result of a hook; NotImplemented where there is none for the function, or it declines."""
        hook, capture = _HOOKS.get(function), running()
        if hook is None or capture is None or not capture.explorers:
            return NotImplemented
        return hook(capture, *args, **kwargs)


# ---- the hooks: each takes the capture and the arguments of the builtin


def _int(capture: Capture, value: object = 0, *base: object) -> object:
    # Python's int() would fix the size at the example's.
    if isinstance(value, torch.SymInt):
        return value
    # With a base, as in int("ff", 16), it reads text.
    if not isinstance(value, torch.Tensor) or base:
        return NotImplemented
    known = static_value(capture, value)
    if known is not None:
        return int(known)
    whole = value if not value.dtype.is_floating_point else value.trunc()
    return as_number(capture, whole.to(torch.int64))


def _float(capture: Capture, value: object = 0.0) -> object:
    if isinstance(value, torch.SymFloat):
        return value
    if isinstance(value, torch.SymInt):
        return full_scalar(value, torch.get_default_dtype())
    if not isinstance(value, torch.Tensor):
        return NotImplemented
    # float() takes one element in any shape, as [1, 1].
    number = value.reshape(()) if value.dim() else value
    return number if number.dtype.is_floating_point else number.to(torch.get_default_dtype())


def _len(capture: Capture, value: object) -> object:
    capture.check_len(value)
    return value.shape[0] if isinstance(value, torch.Tensor) and value.dim() else NotImplemented


def _round(capture: Capture, value: object, digits: int | None = None) -> object:
    # torch rounds half to even, as Python does.
    if not isinstance(value, torch.Tensor):
        return NotImplemented
    return as_number(capture, value.round().to(torch.int64)) if digits is None else value.round(decimals=digits)


def _max(capture: Capture, *values: object, **kwargs: object) -> object:
    return NotImplemented if kwargs else _extreme(values, torch.maximum, torch.sym_max)


def _min(capture: Capture, *values: object, **kwargs: object) -> object:
    return NotImplemented if kwargs else _extreme(values, torch.minimum, torch.sym_min)


def _extreme(
    values: Sequence[object],
    of_tensors: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    of_numbers: Function,
) -> object:
    """`max` or `min` of values, or of one list of them, where any is a tensor or a symbolic number."""
    listed = list(values[0]) if len(values) == 1 and isinstance(values[0], list | tuple) else list(values)
    # max(t) of one tensor goes over its rows: a loop of Python, not this hook.
    if len(listed) < 2 or not any(isinstance(value, (torch.Tensor, *_SYMBOLIC)) for value in listed):
        return NotImplemented
    if any(isinstance(value, torch.Tensor) for value in listed):
        return functools.reduce(of_tensors, _same_dtype(listed))
    return functools.reduce(of_numbers, listed)


def _same_dtype(values: Iterable[object]) -> list[torch.Tensor]:
    found = [as_tensor(value) for value in values]
    dtype = functools.reduce(torch.promote_types, (tensor.dtype for tensor in found))
    return [tensor.to(dtype) if tensor.dtype != dtype else tensor for tensor in found]


def _range(capture: Capture, *bounds: object) -> object:
    dynamic = any(isinstance(b, torch.Tensor | torch.SymInt) and static_value(capture, b) is None for b in bounds)
    # `range(n)[i]` asks for one number, and is no loop; nor is a range of one round, which a patch answers.
    if not dynamic or subscripting() or one_step(bounds):
        return NotImplemented
    return Rows(capture, capture.execute(torch.arange, bounds, {"dtype": torch.int64}), counts=True)


def _enumerate(capture: Capture, values: object, start: int = 0) -> object:
    # Of a known number of rows Python's own enumerate runs, which unrolls them.
    if not isinstance(values, torch.Tensor) or static_dim(capture, values, 0) is not None:
        return NotImplemented
    return NumberedRows(capture, values, start)


_HOOKS: dict[Function, Function] = {
    builtins.int: _int,
    builtins.float: _float,
    builtins.len: _len,
    builtins.round: _round,
    builtins.max: _max,
    builtins.min: _min,
    builtins.range: _range,
    builtins.enumerate: _enumerate,
}
