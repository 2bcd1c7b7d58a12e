"""`int`, `float`, `len`, `min`, `max` ... in the user's modules, while branches are forked: tensors stay tensors."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from onnxpatch.control_flow import constructors, scalar_conversions
from onnxpatch.control_flow.capture import Capture
from onnxpatch.control_flow.current_capture import running
from onnxpatch.control_flow.loops import rows
from onnxpatch.control_flow.source_sites import subscripting
from onnxpatch.patching import rebinding, runtime

_SYMBOLIC = (torch.SymInt, torch.SymFloat)


class _Answers(runtime.Scope):
    """A scope whose stand-ins are the functions below, in force where a capture runs; the
    scopes around it are asked for the rest."""

    def __init__(self, around: runtime.Scope | None) -> None:
        self._around = around
        if around is not None:
            super().__init__(around.settings, around._paths)

    def answer(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        answer, capture = _STAND_INS.get(function), running()
        if answer is None or capture is None or not capture.frames:
            return NotImplemented
        return answer(capture, *args, **kwargs)


def prepared(model: torch.nn.Module) -> list[rebinding.Substitution]:
    """Where the stand-ins will go. To be found before the export: torch.export exchanges builtins of its own."""
    classes = {type(module) for module in model.modules()}
    originals = [(f"builtins.{function.__name__}", function) for function in _STAND_INS]
    found = rebinding.substitutions(model, originals, classes, runtime._lookup)
    return found + constructors.places(list(rebinding._defining_modules(classes)))


@contextmanager
def shadowed(installed: list[rebinding.Substitution]) -> Iterator[None]:
    """The stand-ins are in force inside the block, in this thread."""
    mine = _Answers(runtime.current())
    with rebinding.installed(installed):
        runtime._active.scopes.append(mine)
        try:
            yield
        finally:
            runtime._active.scopes.remove(mine)


def _int(capture: Capture, value: Any = 0, *args: Any) -> Any:
    if isinstance(value, torch.SymInt):
        return value
    if not isinstance(value, torch.Tensor) or args:
        return NotImplemented
    known = scalar_conversions.static_value(capture, value)
    if known is not None:
        return int(known)
    whole = value if not value.dtype.is_floating_point else value.trunc()
    return scalar_conversions.as_number(capture, whole.to(torch.int64))


def _float(capture: Capture, value: Any = 0.0) -> Any:
    if isinstance(value, torch.SymFloat):
        return value
    if isinstance(value, torch.SymInt):
        return scalar_conversions.full(value, torch.get_default_dtype())
    if not isinstance(value, torch.Tensor):
        return NotImplemented
    number = value.reshape(()) if value.dim() else value
    return number if number.dtype.is_floating_point else number.to(torch.get_default_dtype())


def _len(capture: Capture, value: Any) -> Any:
    capture.check_len(value)
    return value.shape[0] if isinstance(value, torch.Tensor) and value.dim() else NotImplemented


def _round(capture: Capture, value: Any, digits: int | None = None) -> Any:
    if not isinstance(value, torch.Tensor):
        return NotImplemented
    return (
        scalar_conversions.as_number(capture, value.round().to(torch.int64))
        if digits is None
        else value.round(decimals=digits)
    )


def _extreme(capture: Capture, which: str, values: tuple[Any, ...]) -> Any:
    given = list(values[0]) if len(values) == 1 and isinstance(values[0], list | tuple) else list(values)
    if len(given) < 2 or not any(isinstance(value, (torch.Tensor, *_SYMBOLIC)) for value in given):
        return NotImplemented
    if any(isinstance(value, torch.Tensor) for value in given):
        combine: Any = torch.maximum if which == "max" else torch.minimum
        return functools.reduce(combine, _alike(given))
    return functools.reduce(torch.sym_max if which == "max" else torch.sym_min, given)


def _alike(values: list[Any]) -> list[torch.Tensor]:
    found = [scalar_conversions._stack(value) for value in values]
    dtype = functools.reduce(torch.promote_types, (tensor.dtype for tensor in found))
    return [tensor.to(dtype) if tensor.dtype != dtype else tensor for tensor in found]


def _max(capture: Capture, *values: Any, **kwargs: Any) -> Any:
    return NotImplemented if kwargs else _extreme(capture, "max", values)


def _min(capture: Capture, *values: Any, **kwargs: Any) -> Any:
    return NotImplemented if kwargs else _extreme(capture, "min", values)


def _range(capture: Capture, *bounds: Any) -> Any:
    if not any(isinstance(b, torch.Tensor | torch.SymInt) and _fixed(capture, b) is None for b in bounds):
        return NotImplemented
    if subscripting():
        return NotImplemented
    made = capture.execute(torch.arange, bounds, {"dtype": torch.int64})
    return rows.Rows(capture, made, counts=True)


def _fixed(capture: Capture, value: Any) -> Any:
    return scalar_conversions.static_value(capture, value)


def _enumerate(capture: Capture, values: Any, start: int = 0) -> Any:
    if not isinstance(values, torch.Tensor) or scalar_conversions.fixed_size(capture, values, 0) is not None:
        return NotImplemented
    return rows.NumberedRows(capture, values, start)


_STAND_INS: dict[Any, Callable[..., Any]] = {
    builtins.int: _int,
    builtins.float: _float,
    builtins.len: _len,
    builtins.round: _round,
    builtins.max: _max,
    builtins.min: _min,
    builtins.range: _range,
    builtins.enumerate: _enumerate,
}
