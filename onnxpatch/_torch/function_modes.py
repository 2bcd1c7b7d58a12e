"""What a TorchFunctionMode sees: which torch APIs, why, and what happens when they move.

- `torch.overrides.get_overridable_functions` (public) says which functions a TorchFunctionMode sees.
- `torch._C.DisableTorchFunction` runs a block past every mode, as `torch.overrides` itself does. If it moves, this file
  fails at import.
- `torch._C._len_torch_function_stack` and `torch.overrides._pop_mode`: the modes in force in this thread. An interrupt
  between a `with mode:` and the mode's own end leaves it in force; where these have moved, it stays.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Iterator
from typing import Any

import torch

from onnxpatch.undone import undone

unseen = torch._C.DisableTorchFunction
"""Context manager: torch calls inside are seen by no TorchFunctionMode."""


_BUILTINS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


@contextlib.contextmanager
def function_modes_kept() -> Iterator[None]:
    """After the block, the modes that it left in force are so no longer, in this thread."""
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
    """What a TorchFunctionMode is handed when `function` is called, or None if such a mode never sees it."""
    if isinstance(function, types.GetSetDescriptorType | property):
        return function.__get__
    if isinstance(function, _BUILTINS):
        owner = function if getattr(function, "__module__", None) else getattr(function, "__objclass__", None)
        return function if str(getattr(owner, "__module__", "")).split(".")[0] == "torch" else None
    return function if function in _overridable() else None


def function_name(function: object) -> str:
    """The name that a torch function has in torch; of a property (Tensor.mT) that of the property."""
    name = getattr(function, "__name__", "")
    # A property comes to a TorchFunctionMode as the bound __get__ of its descriptor.
    return getattr(getattr(function, "__self__", None), "__name__", name) if name == "__get__" else name
