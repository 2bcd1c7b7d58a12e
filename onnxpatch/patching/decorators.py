"""Decorators for authors of layers: `onnx_forward`, `onnx_standin` and `keep`.

They replace `if torch.onnx.is_in_onnx_export():` in a forward:

    class Layer(nn.Module):
        def forward(self, x): ...           # eager

        @onnxpatch.onnx_forward
        def forward_onnx(self, x): ...      # runs in place of forward while an exporter runs

A decorator only sets an attribute. It is read when a model is patched, so it costs nothing in eager.
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
from onnxpatch.process import undone

_FORWARD = "__onnxpatch_forward__"
_STAND_IN = "__onnxpatch_stand_in__"
_KEEP = "__onnxpatch_keep__"
Method = TypeVar("Method", bound=Callable[..., Any])
Kept = TypeVar("Kept", "type[torch.nn.Module]", torch.nn.Module)


def onnx_forward(method: Method) -> Method:
    """Mark a method that replaces `forward` during export. Inside it, `self.forward(...)` runs the eager forward.

        @onnxpatch.onnx_forward
        def export_forward(self, x): ...

    It takes the same arguments as forward, under the same names. A subclass that overrides `forward` and marks no
    method of its own is exported with its own forward, and the plan says so.
    """
    setattr(method, _FORWARD, True)
    return method


def onnx_standin(stand_in: type) -> Callable[[type], type]:
    """Mark a class with the stand-in that is used for it during export: `@onnxpatch.onnx_standin(StandIn)`.

    stand_in: a mixin, whose methods override those of the class; or a subclass of nn.Module: `stand_in(module)` then
        replaces the module, and may have other parameters.
    """

    def mark(cls: type) -> type:
        setattr(cls, _STAND_IN, stand_in)
        return cls

    return mark


def keep(target: Kept) -> Kept:
    """Leave a module, or all modules of a class, out of patching: they and their submodules are exported unpatched.

    target: a module, or a class of modules (`@onnxpatch.keep`). Returns it.
    """
    if isinstance(target, torch.nn.Module):
        vars(target)[_KEEP] = True
    else:
        setattr(target, _KEEP, True)
    return target


def opted_out(module: torch.nn.Module) -> bool:
    """Whether the module, or its class, is marked by `keep`."""
    return _KEEP in module.__dict__ or hasattr(type(module), _KEEP)


def own_patch(cls: type) -> tuple[Patch, str | None] | None:
    """(patch, reason why it does not apply, or None) of a class with a decorator; None for a class without one."""
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
        # The nearer forward is another computation, of which the marked method knows nothing.
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


def _until_reentered(method: Callable[..., object], original: Callable[..., object]) -> Callable[..., Any]:
    """`method`; called again from inside itself on the same instance, it runs `original`."""
    # Another thread may run the same instance in eager.
    running = threading.local()

    @contextlib.contextmanager
    def entering(module: object) -> Iterator[bool]:
        inside: frozenset[int] = vars(running).get("inside", frozenset())
        with undone(lambda: setattr(running, "inside", inside)):
            running.inside = inside | {id(module)}
            yield id(module) not in inside

    def forward(self: Any, *args: object, **kwargs: object) -> Any:
        with entering(self) as first:
            return (method if first else original)(self, *args, **kwargs)

    # torch.jit.script compiles the source of `__wrapped__`, but looks names up in the globals of the function itself.
    there = types.FunctionType(forward.__code__, method.__globals__, method.__name__, None, forward.__closure__)
    return functools.wraps(method)(there)
