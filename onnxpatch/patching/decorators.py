"""Opting in and out, for authors of layers: without global flags, and without cost outside export.

This is what `torch.onnx.is_in_onnx_export()` branches are used for. A decorator only marks; the marked method or class
is looked at when a model is patched.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

from onnxpatch.patching.generated import class_before
from onnxpatch.patching.registry import Patch

_FORWARD = "__onnxpatch_forward__"
_STAND_IN = "__onnxpatch_stand_in__"
_KEEP = "__onnxpatch_keep__"
Method = TypeVar("Method", bound=Callable[..., Any])
Kept = TypeVar("Kept", "type[torch.nn.Module]", torch.nn.Module)


def onnx_forward(method: Method) -> Method:
    """Mark a method: it is `forward` during export only. In it, `self.forward(...)` is the eager forward.

    It takes the arguments that forward takes, under the same names. A subclass that overrides `forward` without
    marking a method of its own is left alone, and the plan says so.
    """
    setattr(method, _FORWARD, True)
    return method


def onnx_standin(stand_in: type) -> Callable[[type], type]:
    """Have a class name its own stand-in: a mixin whose methods override the class's during export, or an nn.Module
    class that is made from the module (`stand_in(module)`) and takes its place, for a changed layout of parameters."""

    def mark(cls: type) -> type:
        setattr(cls, _STAND_IN, stand_in)
        return cls

    return mark


def keep(target: Kept) -> Kept:
    """Opt a class of modules, or one module, out: it and everything under it is exported as it is."""
    if isinstance(target, torch.nn.Module):
        vars(target)[_KEEP] = True
    else:
        setattr(target, _KEEP, True)
    return target


def kept(module: torch.nn.Module) -> bool:
    """Whether the module, or its class, is marked by `keep`."""
    return _KEEP in module.__dict__ or hasattr(type(module), _KEEP)


def own_patch(cls: type) -> tuple[Patch, str | None] | None:
    """The patch that a class declares for itself, with the reason why it does not hold, or None if it declares none."""
    written = class_before(cls)
    for depth, base in enumerate(written.__mro__):
        marked = [value for value in vars(base).values() if getattr(value, _FORWARD, False)]
        stand_in = vars(base).get(_STAND_IN)
        if marked or stand_in:
            patch = _forward_patch(written, marked[0]) if marked else _stand_in_patch(base, stand_in)
            return patch, _overridden(written, depth)
    return None


def _overridden(cls: type, depth: int) -> str | None:
    for nearer in cls.__mro__[:depth]:
        if "forward" in vars(nearer):
            return f"{nearer.__name__} overrides forward without opting in itself"
    return None


def _forward_patch(cls: Any, method: Callable[..., Any]) -> Patch:
    forward = _until_reentered(method, cls.forward)
    mixin = type("OnnxForward", (), {"forward": forward, "__module__": method.__module__})
    return Patch("onnx_forward", (_path(cls),), mixin, f"{cls.__name__}.{method.__name__} is marked @onnx_forward")


def _stand_in_patch(cls: type, stand_in: Any) -> Patch:
    why = f"{cls.__name__} names {stand_in.__name__} as its stand-in"
    return Patch("onnx_standin", (_path(cls),), stand_in, why, replaces=issubclass(stand_in, torch.nn.Module))


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _until_reentered(method: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """`method`, but `original` when called again from inside it on the same instance."""
    running = threading.local()

    @contextlib.contextmanager
    def entering(module: object) -> Iterator[bool]:
        inside = vars(running).setdefault("inside", set())
        first = id(module) not in inside
        inside.add(id(module))
        try:
            yield first
        finally:
            if first:
                inside.discard(id(module))

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        with entering(self) as first:
            return (method if first else original)(self, *args, **kwargs)

    # torch.jit.script reads the source of `__wrapped__`, but looks names up in the globals of the function itself.
    there = types.FunctionType(forward.__code__, method.__globals__, method.__name__, None, forward.__closure__)
    return functools.wraps(method)(there)
