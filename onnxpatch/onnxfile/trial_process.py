"""Runs what may end the process in a copy of it (fork), to know whether it does.

onnxruntime has kernels that divide by the size of an axis: with one of size 0 the system ends the process, and no
`except` sees it. Of the products that onnxruntime 1.31 fuses with a transpose before them, one does so:

    MatMul(Transpose(q, (1, 0, 2)), Transpose(k, (1, 2, 0)))    q or k of shape (0, batch, features)

InstanceNormalization reads memory that is not its own where its axis has size 0.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import time
from collections.abc import Callable

from onnxpatch.process import filtered

_STEP = 0.002  # seconds between two looks at the copy


def survives(job: Callable[[], object], seconds: float) -> bool:
    """Whether `job` returns or raises within `seconds`, where a copy of this process runs it.

    True without a trial where the system has no fork (Windows), or where other code of the process waits for its
    children. The copy has this thread alone: the job must not rely on threads that run already.
    """
    if not hasattr(os, "fork"):
        return True
    # Python 3.12 and newer warn of locks that other threads hold: then the copy waits, and is ended below.
    with filtered("ignore", category=DeprecationWarning):
        child = os.fork()
        if not child:
            _run_to_the_end(job)
    status: int | None = None
    ends = time.monotonic() + seconds
    try:
        while status is None and time.monotonic() < ends:
            time.sleep(_STEP)
            ended, found = os.waitpid(child, os.WNOHANG)
            status = found if ended else None
    except ChildProcessError:
        return True
    finally:
        if status is None:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
    return status == 0


def _run_to_the_end(job: Callable[[], object]) -> None:
    try:
        faulthandler.disable()  # what ends the copy is no fault of this process
        job()
    finally:
        os._exit(0)
