"""Private and version-dependent torch APIs: which, why, and what happens when they move.

- `torch.compiler.is_exporting` (public since 2.7) is True under torch.export and False under torch.compile; 2.6 falls
  back to `is_compiling`. Both are flags of the process, and the exporter may run in another thread. So
  `torch._guards.TracingContext` is read too, which torch.export sets for its thread; in versions without it, the
  thread's stack of dispatch modes (`torch._C._get_dispatch_mode`), which has torch.export's FakeTensorMode.
- `torch.utils._pytree`: flattens arguments and outputs as both exporters do. torch.export documents it for custom
  containers. There is no fallback.

Each of the other files does the same for one subject.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch.utils import _pytree as pytree

__all__ = ["exporting", "pytree"]


def exporting() -> Literal["dynamo", "trace"] | None:
    """The exporter that runs the calling code in this thread; None in eager.

    Scripted code is compiled, not run: use `torch.jit.is_scripting()` there. None too in code that Dynamo compiles:
    bodies of torch.cond and torch.while_loop, torch.compile, strict torch.export.
    """
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
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
