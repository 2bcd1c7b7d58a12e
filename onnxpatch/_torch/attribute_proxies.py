"""Whether torch.export asks a module for its class to stand in front of it.

Where a module is shared under two names, torch.export reaches every submodule through a proxy, whose class it derives
from `module.__class__` (`_AttrProxy` of `torch.fx.experimental.proxy_tensor`, private). A patched module answers that
question with the class that was written, and the proxy would then run the model's own code. Where torch asks from
another place, models with shared modules are exported as they are, without patches.
"""

from __future__ import annotations

import sys

_ASKING = "torch.fx.experimental.proxy_tensor"


def asked_for_a_proxy(depth: int = 1) -> bool:
    """Whether the function that is `depth` calls above the caller is torch's."""
    return sys._getframe(depth + 1).f_globals.get("__name__") == _ASKING
