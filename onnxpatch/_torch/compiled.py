"""Callables that torch.compile made, as a module holds them: which private torch names tell them, and what happens when
these move.

- `_torchdynamo_orig_callable`: on what torch.compile returns for a function, and on the forward of the OptimizedModule
  that it returns for a module; the function as it was written.
- `Module._compiled_call_impl`: what `module.compile()` sets in place of the module's own call.

The TorchScript exporter refuses what was compiled. Where these names have moved, it does so again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def written_callables(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """(attribute of the module, what it holds uncompiled) for every compiled callable that the module holds itself."""
    for name, value in vars(module).items():
        if name == "_compiled_call_impl":
            if value is not None:
                yield name, None
        elif callable(value) and not isinstance(value, torch.nn.Module):
            written = getattr(value, "_torchdynamo_orig_callable", None)
            if callable(written):
                yield name, written
