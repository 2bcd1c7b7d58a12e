"""Private and version-dependent torch APIs: which, why, and what happens when they move.

- `torch.compiler.is_exporting` (public since 2.7) tells torch.export from torch.compile; 2.6 falls back to
  `is_compiling`. Both are flags of the process. `torch._guards.TracingContext` belongs to a thread, and torch.export
  keeps one while it runs a model. So does the stack of dispatch modes, with torch.export's mode for fake tensors
  (`torch._C._get_dispatch_mode`), which is asked where a version keeps no context.
- `torch.utils._pytree`: flattening arguments and outputs exactly as both exporters do; it is what `torch.export`
  documents for custom containers. It moves with torch.export; where it is gone, every export is refused.
- `_torchdynamo_orig_callable`: on what torch.compile returns for a function, and on the forward of the OptimizedModule
  that it returns for a module: the original function. `Module._compiled_call_impl`: what `module.compile()` sets in
  place of the module's call. If these move, compiled parts are not found, and the TorchScript exporter refuses them.
- `_AttrProxy` of `torch.fx.experimental.proxy_tensor`: where a module is shared under two names, torch.export reaches
  every submodule through a proxy, whose class it derives from `module.__class__`. A patched module answers with the
  class that was written, but not to this module of torch: the proxy would run the model's own code. Where torch asks
  from another place, models with shared modules are exported as they are, without patches.
- `torch._numpy`: NumPy's functions on arrays that are tensors. If it moves, arrays of sizes stay NumPy's.
- `torch._C.ScriptModule.code` says which attributes compiled code assigns, `self.state = ...`. If it moves, a compiled
  model that keeps a state is compared in the state that the last call left.

Each of the other files does the same for one subject.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch

from onnxpatch._torch.relied_on import gone_module

try:
    from torch.utils import _pytree as pytree
except ImportError:
    pytree = gone_module("torch.utils._pytree")
numpy_on_tensors: Any
Array: Any
try:
    import torch._numpy

    numpy_on_tensors, Array = torch._numpy, torch._numpy.ndarray  # type: ignore[attr-defined]
except (ImportError, AttributeError):
    numpy_on_tensors, Array = gone_module("torch._numpy"), ()

__all__ = [
    "PROXY_MAKER", "Array", "assigned_in_compiled", "exporting", "numpy_on_tensors", "pytree", "written_callables",
]  # fmt: skip

_ASSIGNED = re.compile(r"^\s*self\.(\w+) = ", re.M)

PROXY_MAKER = "torch.fx.experimental.proxy_tensor"
"""The module of torch that derives proxies from a module's class."""


def exporting() -> Literal["dynamo", "trace"] | None:
    """The exporter that runs the calling code in this thread; None in eager.

    Scripted code is compiled, not run: use `torch.jit.is_scripting()` there. None too in code that Dynamo compiles:
    bodies of torch.cond and torch.while_loop, torch.compile, strict torch.export.
    """
    # First: Dynamo folds this call when it compiles, and never sees the lines below.
    if torch.compiler.is_dynamo_compiling():
        return None
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        return "trace"
    is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)
    return "dynamo" if is_exporting() and _tracing_here() else None


def _tracing_here() -> bool:
    """Whether torch.export runs a model in this thread. Another thread may run the same model in eager."""
    context = getattr(torch._guards, "TracingContext", None)
    if context is not None and context.try_get() is not None:
        return True
    keys = getattr(torch._C, "_TorchDispatchModeKey", None)
    mode_of = getattr(torch._C, "_get_dispatch_mode", None)
    return keys is not None and mode_of is not None and mode_of(keys.FAKE) is not None


def written_callables(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """(attribute, original function) of every compiled callable in the attributes of a module."""
    for name, value in vars(module).items():
        if name == "_compiled_call_impl":
            if value is not None:
                # As in a module that was never compiled.
                yield name, None
        elif callable(value) and not isinstance(value, torch.nn.Module):
            written = getattr(value, "_torchdynamo_orig_callable", None)
            if callable(written):
                yield name, written


def assigned_in_compiled(module: torch.nn.Module) -> dict[str, Any]:
    """The attributes that the code of a ScriptModule assigns, with their values now; none of another module."""
    code = getattr(getattr(module, "_c", None), "code", "") if isinstance(module, torch.jit.ScriptModule) else ""
    return {name: getattr(module, name) for name in sorted({*_ASSIGNED.findall(code)}) if hasattr(module, name)}
