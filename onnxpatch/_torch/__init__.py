"""Private and version-dependent torch APIs: which, why, and what happens when they move.

- `torch.compiler.is_exporting` (public since 2.7) tells torch.export from torch.compile; 2.6 falls back to
  `is_compiling`.
- `torch.utils._pytree`: flattening arguments and outputs exactly as both exporters do; it is what `torch.export`
  documents for custom containers. It moves with torch.export; no fallback.

The other files of this folder do the same for one subject each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch.utils import _pytree as pytree

__all__ = ["exporting", "pytree"]


def exporting() -> Literal["dynamo", "trace"] | None:
    """Which exporter is running the calling code now, or None in plain eager.

    Scripted code is compiled, not run: there, ask `torch.jit.is_scripting()`.
    """
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        return "trace"
    is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)
    return "dynamo" if is_exporting() else None
