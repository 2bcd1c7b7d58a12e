"""Numbers below 1.2e-38 (denormals) counted as zero while a graph runs.

A masked softmax makes many such numbers, and a processor takes many times longer for an operation on one: attention
with a mask gets up to three times slower. onnxruntime has an option, `POOL_OPTION`. It reaches the threads of a
session's own pool, but the calling thread only in the first session of a process, and that thread then stays so. Here
the calling thread is set for the length of a run, and set back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import torch

from onnxpatch.process import undone

POOL_OPTION = "session.set_denormal_as_zero"
_SMALL = np.array([1e-30, 1e-9], dtype=np.float32)


@contextlib.contextmanager
def flushed() -> Iterator[None]:
    """Inside the block, the calling thread counts denormals as zero; where the processor cannot, nothing changes."""
    with kept():
        torch.set_flush_denormal(True)
        yield


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """After the block, the calling thread treats denormals as it did before."""
    # 1e-39 is a denormal: this product is 0 only where they are flushed. torch has a switch for that, and no way to
    # ask.
    before = bool(_SMALL[0] * _SMALL[1] == 0)
    with undone(lambda: torch.set_flush_denormal(before)):
        yield
