"""Lists the Python values that the running forwards can reach, and the parts that a value is made of.

    roots(frame, model)     local names on the stack, plain globals of these files, the model
    members_of(value)         a list's entries, an object's attributes, how far an iterator has come; None if opaque

Opaque are functions without closures and objects of torch, NumPy and the standard library: they are compared by class.
"""

from __future__ import annotations

import collections
import functools
import sys
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import CellType, FrameType
from typing import TypeAlias

import numpy as np
import torch

from onnxpatch.messages.user_code import is_user_frame, runs_in

Parts: TypeAlias = Iterable[tuple[object, object]]
"""(name or position, value)."""

PLAIN = (bool, int, float, complex, str, bytes, types.NoneType, torch.dtype, torch.device, np.generic)
"""Types whose values are compared by their text."""

LARGEST = 1000
"""Parts of one container, and elements of one array, that are looked at."""

# Hooks, flags and parameters: torch's own entries in every module, which no forward sets between two rounds.
_MODULES_OWN = frozenset(vars(torch.nn.Module())) - {"_buffers"}
_LIBRARIES = sys.stdlib_module_names - {"__main__"} | {"torch", "onnxpatch", "numpy"}
_OUTERMOST = ("onnxpatch.control_flow.forked_forward", "run_root")


def roots(frame: FrameType | None, model: torch.nn.Module) -> Iterator[tuple[str, object]]:
    """Names and values that the running forwards can reach.

    Local names from the innermost frame to the model's own call (those of callers are prefixed with their depth, as
    "1:total"), the plain globals of their files, the model.
    """
    files: dict[str, dict[str, object]] = {}
    depth = 0
    # Frames further out are the exporter's.
    while frame is not None and not (runs_in(frame, _OUTERMOST[0]) and frame.f_code.co_name == _OUTERMOST[1]):
        if is_user_frame(frame):
            prefix = "" if depth == 0 else f"{depth}:"
            yield from ((prefix + name, value) for name, value in frame.f_locals.items())
            # Once for each file, however many of its functions are on the stack.
            files[frame.f_globals.get("__name__", "")] = frame.f_globals
            depth += 1
        frame = frame.f_back
    for file, names in files.items():
        yield from ((f"{file}:{n}", value) for n, value in list(names.items()) if n[:2] != "__" and _is_plain(value))
    yield "model", model


def members_of(value: object) -> Parts | None:
    """The parts that a value is made of; None for a value that is compared by its class alone."""
    if isinstance(value, list | tuple | collections.deque):
        return enumerate(value)
    if isinstance(value, Mapping):
        return enumerate(value.items())
    if isinstance(value, set | frozenset):
        return _set_parts(value)
    if isinstance(value, np.ndarray):
        return [("bytes", value.tobytes())] if value.size <= LARGEST else None
    if isinstance(value, types.FunctionType):
        return enumerate(map(_content, value.__closure__ or ()))
    if isinstance(value, functools.partial):
        return [("func", value.func), ("args", value.args), ("keywords", value.keywords)]
    if isinstance(value, types.MethodType):
        return [("self", value.__self__)]
    if isinstance(value, torch.nn.Module):
        return _module_parts(value)
    return _iterator_parts(value) if isinstance(value, Iterator) else _attributes(value)


def _set_parts(value: Collection[object]) -> Parts:
    # The order of a set may change from round to round.
    return enumerate(sorted(repr(one) if isinstance(one, PLAIN) else str(id(one)) for one in value))


def _module_parts(module: torch.nn.Module) -> Parts:
    own = {name: attribute for name, attribute in vars(module).items() if name not in _MODULES_OWN}
    return (own | dict(module._modules) | _class_values(module)).items()


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is not bound yet
        return None


def _iterator_parts(value: Iterator[object]) -> Parts | None:
    """How far an iterator has come: position and locals of a generator, or what pickle would keep of another one."""
    if isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        if frame is None or not is_user_frame(frame):
            return None
        return [("line", frame.f_lasti), *frame.f_locals.items()]
    try:
        # The first entry is the function that makes the iterator again: iter, for one of a list.
        return enumerate(value.__reduce__()[1:])
    except (TypeError, AttributeError):
        return None


def _attributes(value: object) -> Parts | None:
    """The attributes of an object whose class is the user's."""
    if isinstance(value, type | types.ModuleType) or not hasattr(value, "__dict__"):
        return None
    package = str(type(value).__module__).partition(".")[0]
    if package in _LIBRARIES and not isinstance(value, types.SimpleNamespace):
        return None
    return (vars(value) | _class_values(value)).items()


def _class_values(value: object) -> dict[str, object]:
    """Plain attributes of an object's classes, by `Class.name`: a counter may be kept there."""
    classes = [cls for cls in type(value).__mro__ if cls.__module__.partition(".")[0] not in ("torch", "builtins")]
    attributes = ((cls.__name__, name, value) for cls in classes for name, value in vars(cls).items())
    return {f"{cls}.{name}": value for cls, name, value in attributes if name[:2] != "__" and _is_plain(value)}


def _is_plain(value: object) -> bool:
    return isinstance(value, bool | int | float | str | list | dict | set)
