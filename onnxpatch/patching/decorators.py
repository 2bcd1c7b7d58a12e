"""Decorators for authors of layers: `onnx_forward`, `onnx_standin` and `keep`.

They replace `if torch.onnx.is_in_onnx_export():` in a forward:

    class Layer(nn.Module):
        def forward(self, x): ...           # eager

        @onnxpatch.onnx_forward
        def forward_onnx(self, x): ...      # runs in place of forward while an exporter runs

A decorator only sets an attribute. It is read when a model is patched, so it costs nothing in eager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

FORWARD = "__onnxpatch_forward__"
STAND_IN = "__onnxpatch_stand_in__"
KEEP = "__onnxpatch_keep__"
Method = TypeVar("Method", bound=Callable[..., Any])
Kept = TypeVar("Kept", "type[torch.nn.Module]", torch.nn.Module)


def onnx_forward(method: Method) -> Method:
    """Mark a method that replaces `forward` during export. Inside it, `self.forward(...)` runs the eager forward.

        @onnxpatch.onnx_forward
        def export_forward(self, x): ...

    It takes the same arguments as forward, under the same names. A subclass that overrides `forward` and marks no
    method of its own is exported with its own forward, and the plan says so.
    """
    setattr(method, FORWARD, True)
    return method


def onnx_standin(stand_in: type) -> Callable[[type], type]:
    """Mark a class with the stand-in that is used for it during export: `@onnxpatch.onnx_standin(StandIn)`.

    stand_in: a mixin, whose methods override those of the class; or a subclass of nn.Module: `stand_in(module)` then
        replaces the module, and may have other parameters.
    """

    def mark(cls: type) -> type:
        setattr(cls, STAND_IN, stand_in)
        return cls

    return mark


def keep(target: Kept) -> Kept:
    """Leave a module, or all modules of a class, out of patching: they and their submodules are exported unpatched.

    target: a module, or a class of modules (`@onnxpatch.keep`). Returns it.
    """
    if isinstance(target, torch.nn.Module):
        vars(target)[KEEP] = True
    else:
        setattr(target, KEEP, True)
    return target
