"""A limit of time on Python code, by an alarm signal: in the main thread, and not on Windows.

The alarm comes at any moment, also while torch's C++ code is in the middle of something. So it raises nothing itself:
it has Python call back at every line (sys.settrace), and the first safe one (`safe_lines.py`) raises.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import FrameType

from onnxpatch.onnxfile.safe_lines import is_safe, may_end, safe_frames
from onnxpatch.undone import undone

_AGAIN = 0.05  # seconds between one look for a safe line and the next
_Tracer = Callable[[FrameType, str, object], "_Tracer | None"]


class TimeLimit(BaseException):
    """Raised by `limited` at its limit. Not an Exception: exporters catch those, and go on trying.

    seconds: the limit. processor: whether it counts the process's processor time.
    """

    def __init__(self, seconds: float, processor: bool = False) -> None:
        super().__init__(f"more than {seconds:g} s{' of processor time' if processor else ''}")
        self.seconds, self.processor = seconds, processor


@contextlib.contextmanager
def limited(seconds: float | None, processor: bool = False) -> Iterator[None]:
    """Raise TimeLimit inside the block after `seconds` (None: never): at a safe line of Python, or at its end.

    processor: count the processor time of the process, all threads together, and not the clock's: a machine that does
    much else then stops the block at the same point.

    In other threads than the main one, and on Windows, the block runs to its end. An alarm of somebody else, such as
    pytest-timeout's, is set again at the end, for the time that it had left. So is a debugger's trace function.
    """
    usable = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if seconds is None or not usable:
        yield
        return
    clock = time.process_time if processor else time.monotonic
    timer, number = (signal.ITIMER_PROF, signal.SIGPROF) if processor else (signal.ITIMER_REAL, signal.SIGALRM)
    alarm, start = _Alarm(TimeLimit(seconds, processor), sys._getframe()), clock()
    before, (remaining, interval) = signal.getsignal(number), signal.getitimer(timer)

    def put_back() -> None:
        signal.setitimer(timer, 0)
        # The timer first: an alarm in between would go to the handler of somebody else.
        signal.signal(number, before)
        alarm.end()
        if remaining:
            signal.setitimer(timer, max(0.01, remaining - (clock() - start)), interval)

    with undone(put_back):
        signal.signal(number, alarm.rung)
        # At least a hundredth of a second: a timer of 0 would be no timer.
        signal.setitimer(timer, max(seconds, 0.01), _AGAIN)
        yield
    if alarm.late:
        raise TimeLimit(seconds, processor)


class _Alarm:
    """Looks for a safe line once the time is up, and again if what it raised there was swallowed: an exception in a
    destructor, say, ends there. late: whether the time is up."""

    def __init__(self, limit: TimeLimit, block: FrameType) -> None:
        self._limit = (limit.seconds, limit.processor)
        self._base = _caller(block)
        self._raised: weakref.ref[TimeLimit] | None = None
        self._tracer = sys.gettrace()  # of a debugger, say
        self._watching = False
        self._watched: list[tuple[FrameType, object]] = []
        self.late = False

    def rung(self, _signal: int, frame: FrameType | None) -> None:
        """The time is up; called again and again until the block ends."""
        self.late = True
        # A TimeLimit that is still alive is on its way out of the block.
        if self._watching or (self._raised is not None and self._raised() is not None):
            return
        self._watching = True
        for one in safe_frames(frame, self._base):
            self._watched.append((one, one.f_trace))
            one.f_trace = self._at_line
        # This is called for frames that begin from now on; those that run already have got theirs above.
        sys.settrace(self._at_call)

    def end(self) -> None:
        """Have Python call nobody any more."""
        if self._watching or self._raised is not None:
            self._watching = False
            sys.settrace(self._tracer)
        for frame, tracer in self._watched:
            frame.f_trace = tracer  # type: ignore[assignment]
        self._watched.clear()

    def _at_call(self, frame: FrameType, event: str, _argument: object) -> _Tracer | None:
        return self._at_line if self._watching and may_end(frame) else None

    def _at_line(self, frame: FrameType, event: str, _argument: object) -> _Tracer | None:
        if event != "line" or not self._watching or not is_safe(frame, self._base):
            return self._at_line if self._watching else None
        self._watching = False
        late = TimeLimit(*self._limit)
        self._raised = weakref.ref(late)
        try:
            raise late
        finally:
            del late  # its traceback holds this frame: it would never be known to be swallowed


def _caller(block: FrameType) -> FrameType:
    """The frame of the `with` statement: the generator is started by contextlib."""
    frame: FrameType | None = block.f_back
    while frame is not None and frame.f_globals.get("__name__") == "contextlib":
        frame = frame.f_back
    assert frame is not None
    return frame
