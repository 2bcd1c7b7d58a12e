"""Which functions a TorchFunctionMode sees, and under which key and name.

- `torch.overrides.get_overridable_functions` (public) says which functions a TorchFunctionMode sees.
- `torch._C.DisableTorchFunction` runs a block past every mode, as `torch.overrides` itself does. If it moves, patches
  of functions are refused.
- `torch._C._len_torch_function_stack` and `torch.overrides._pop_mode`: the modes of this thread. An interrupt
  between a `with mode:` and the mode's own end leaves it active; where these have moved, it stays.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Iterator
from typing import Any

import torch

from onnxpatch._torch.gone import gone_class
from onnxpatch.undone import undone

try:
    unseen = torch._C.DisableTorchFunction
except AttributeError:
    unseen = gone_class("torch._C.DisableTorchFunction")
"""Context manager: torch calls inside are seen by no TorchFunctionMode."""


_BUILTINS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


@contextlib.contextmanager
def function_modes_kept() -> Iterator[None]:
    """After the block, deactivate the modes that it left active in this thread."""
    depth = _modes()

    def leave() -> None:
        while _modes() > depth:
            torch.overrides._pop_mode()

    with undone(leave):
        yield


def _modes() -> int:
    count = getattr(torch._C, "_len_torch_function_stack", None)
    return int(count()) if count is not None and hasattr(torch.overrides, "_pop_mode") else 0


@functools.cache
def _overridable() -> frozenset[Any]:
    functions = torch.overrides.get_overridable_functions()
    return frozenset(function for group in functions.values() for function in group)


@functools.lru_cache(maxsize=4096)
def torch_function_key(function: object) -> Any | None:
    """The function that a TorchFunctionMode gets when `function` is called; None if no mode sees the call."""
    if isinstance(function, types.GetSetDescriptorType | property):
        return function.__get__
    if isinstance(function, _BUILTINS):
        owner = function if getattr(function, "__module__", None) else getattr(function, "__objclass__", None)
        return function if str(getattr(owner, "__module__", "")).split(".")[0] == "torch" else None
    # A function in C++ always asks the modes; one in Python does where torch has written that into it.
    return function if function in _overridable() else None


def function_name(function: object) -> str:
    """The name of a torch function in torch; for a property (Tensor.mT), the property's."""
    name = getattr(function, "__name__", "")
    # A TorchFunctionMode gets a property as the bound __get__ of its descriptor.
    return getattr(getattr(function, "__self__", None), "__name__", name) if name == "__get__" else name
