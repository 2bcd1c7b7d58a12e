"""Private and version-dependent torch APIs: which, why, and what happens when they move.

- `torch.compiler.is_exporting` (public since 2.7) tells torch.export from torch.compile; 2.6 falls back to
  `is_compiling`. Both are flags of the process. `torch._guards.TracingContext` belongs to a thread, and torch.export
  keeps one while it runs a model. So does the stack of dispatch modes, with torch.export's mode for fake tensors
  (`torch._C._get_dispatch_mode`), which is asked where a version keeps no context.
- `torch.utils._pytree`: flattening arguments and outputs exactly as both exporters do; it is what `torch.export`
  documents for custom containers. It moves with torch.export; where it is gone, every export is refused.

Each of the other files does the same for one subject.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch

from onnxpatch._torch.missing_api import GoneModule

try:
    from torch.utils import _pytree as pytree
except ImportError:
    pytree = GoneModule("torch.utils._pytree")  # type: ignore[assignment]

__all__ = ["exporting", "pytree"]


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
