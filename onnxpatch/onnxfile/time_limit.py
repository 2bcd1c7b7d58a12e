"""A time limit on Python code, by an alarm signal: in the main thread, and not on Windows."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType


class TimeLimit(BaseException):
    """Raised by `limited` at its limit. Not an Exception: exporters catch those, and go on trying.

    seconds: the limit.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"more than {seconds:g} s")
        self.seconds = seconds


@contextlib.contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Raise TimeLimit inside the block after `seconds` (None: never).

    In other threads than the main one, and on Windows, the block runs to its end. An alarm of somebody else, such as
    pytest-timeout's, is set again at the end, for the time that it had left.
    """
    usable = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if seconds is None or not usable:
        yield
        return

    def on_alarm(_signal: int, _frame: FrameType | None) -> None:
        raise TimeLimit(seconds)

    start = time.monotonic()
    before = signal.signal(signal.SIGALRM, on_alarm)
    # At least a hundredth of a second: a timer of 0 would be no timer.
    remaining, interval = signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if remaining:
            signal.setitimer(signal.ITIMER_REAL, max(0.01, remaining - (time.monotonic() - start)), interval)
