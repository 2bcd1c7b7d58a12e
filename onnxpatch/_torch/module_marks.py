"""Private torch names by which a module shows what torch made of it, or asks for its class.

- `_torchdynamo_orig_callable`: on what torch.compile returns for a function, and on the forward of the OptimizedModule
  that it returns for a module: the original function. `Module._compiled_call_impl`: what `module.compile()` sets in
  place of the module's call. If these move, compiled parts are not found, and the TorchScript exporter refuses them.
- `_AttrProxy` of `torch.fx.experimental.proxy_tensor`: where a module is shared under two names, torch.export reaches
  every submodule through a proxy, whose class it derives from `module.__class__`. A patched module answers with the
  class that was written, but not to this module of torch: the proxy would run the model's own code. Where torch asks
  from another place, models with shared modules are exported as they are, without patches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

PROXY_MAKER = "torch.fx.experimental.proxy_tensor"
"""The module of torch that derives proxies from a module's class."""


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
