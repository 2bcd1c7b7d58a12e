"""A time limit on code that cannot be asked to stop: an alarm in the main thread, nothing elsewhere."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any


class TimeLimit(BaseException):
    """Not an Exception: exporters catch those, and go on trying."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"more than {seconds:g} s")
        self.seconds = seconds


@contextlib.contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Raises TimeLimit inside the block after `seconds` (None: never). An alarm that somebody else has set stays set.

    Signals reach the main thread only, and Windows has no alarm: there the block runs to its end.
    """
    usable = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if seconds is None or not usable:
        yield
        return

    def late(_signal: int, _frame: FrameType | None) -> None:
        raise TimeLimit(seconds)

    start = time.monotonic()
    before: Any = signal.signal(signal.SIGALRM, late)
    remaining, interval = signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if remaining:
            signal.setitimer(signal.ITIMER_REAL, max(0.01, remaining - (time.monotonic() - start)), interval)
