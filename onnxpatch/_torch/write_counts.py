"""`count_writes`: sets torch's count of the writes into a tensor, after a write that was undone.

autograd refuses a backward through a tensor whose count is another one than when it was saved, although its values are
back. `torch._C._autograd._unsafe_set_version_counter` is not public. If it moves, the count stays as it is.
"""

from __future__ import annotations

import contextlib

import torch

__all__ = ["count_writes"]


def count_writes(tensor: torch.Tensor, count: int) -> None:
    """Set the count of writes into `tensor`, and into the views that share it, where torch allows it."""
    with contextlib.suppress(AttributeError, TypeError, RuntimeError):
        torch._C._autograd._unsafe_set_version_counter((tensor,), (count,))
