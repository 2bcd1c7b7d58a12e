"""Private torch names that mark what torch.compile made, so that a model can be exported uncompiled.

- `_torchdynamo_orig_callable`: on what torch.compile returns for a function, and on the forward of the OptimizedModule
  that it returns for a module: the original function.
- `Module._compiled_call_impl`: what `module.compile()` sets in place of the module's call.

If these move, compiled parts are not found, and the TorchScript exporter refuses them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def written_callables(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """(attribute, original function) of every compiled callable in the attributes of a module."""
    for name, value in vars(module).items():
        if name == "_compiled_call_impl":
            # Module.__call__ runs forward where this is None.
            if value is not None:
                yield name, None
        elif callable(value) and not isinstance(value, torch.nn.Module):
            written = getattr(value, "_torchdynamo_orig_callable", None)
            if callable(written):
                yield name, written
