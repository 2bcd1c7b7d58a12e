"""Private and version-dependent torch APIs: which, why, and what happens when they move.

- `torch.compiler.is_exporting` (public since 2.7) tells torch.export from torch.compile; 2.6 falls back to
  `is_compiling`.
- `torch.overrides.get_overridable_functions` (public) says which functions a TorchFunctionMode sees.
- `torch._C.DisableTorchFunction` runs a block past every mode (as `torch.overrides` itself does); were it gone, a
  stand-in that must look at a tensor unseen would fail at import of this file, and the tests with it.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, Literal

import torch


def exporting() -> Literal["dynamo", "trace"] | None:
    """Which exporter is running the calling code now, or None in plain eager.

    Scripted code is compiled, not run: there, ask `torch.jit.is_scripting()`.
    """
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        return "trace"
    is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)
    return "dynamo" if is_exporting() else None


unseen = torch._C.DisableTorchFunction
"""Context manager: torch calls inside are seen by no TorchFunctionMode."""


_BUILTINS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


@functools.cache
def _overridable() -> frozenset[Any]:
    functions = torch.overrides.get_overridable_functions()
    return frozenset(function for group in functions.values() for function in group)


def torch_function_key(function: Any) -> Any | None:
    """What a TorchFunctionMode is handed when `function` is called, or None if such a mode never sees it."""
    if isinstance(function, types.GetSetDescriptorType | property):
        return function.__get__
    if isinstance(function, _BUILTINS):
        owner = function if getattr(function, "__module__", None) else getattr(function, "__objclass__", None)
        return function if str(getattr(owner, "__module__", "")).split(".")[0] == "torch" else None
    return function if function in _overridable() else None
