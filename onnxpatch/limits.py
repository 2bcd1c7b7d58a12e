"""Limits on what runs: of memory, by the operating system where it has one, and of time, by an alarm signal.

The system's limit of memory is for what nobody counts: numpy's arrays, what kernels need meanwhile, a runtime's arena.
Beyond it an allocation fails with an error that Python can catch, and the machine stays as it is.

The limit of time holds in the main thread, and not on Windows. The alarm comes at any moment, also while torch's C++
code is in the middle of something. So it raises nothing itself: it has Python call back at every line (sys.settrace),
and the first safe one raises.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import linecache
import math
import os
import re
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from traceback import walk_stack
from types import FrameType

import torch

from onnxpatch.errors import InputError
from onnxpatch.messages.user_code import package_of, said_by
from onnxpatch.process import undone

_UNITS = {"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_OWN_THREADS = "onnxpatch-"  # what the names of this package's threads begin with
# Addresses that a process may ask for beside what it uses: stacks and heaps of threads that start meanwhile, libraries
# that are loaded.
_SPARE = 1 << 30
_SPARE_FOR_A_THREAD = 160 << 20
_REFUSED = re.compile(r"can't allocate memory|not enough memory|bad_alloc|Failed to allocate memory")
_NOT_ENDED = frozenset(sys.stdlib_module_names) - {"__main__"} | {"torch", "onnxpatch"}
_ENDED = ("torch.nn.functional.", "torch.nn.modules.", "torch.fx.interpreter.", "torch.onnx._internal.exporter.")
_MACHINERY = "torch.nn.modules.module"  # calls hooks, and notes which module runs
_CLEANING = frozenset({"__enter__", "__exit__", "__aenter__", "__aexit__", "__del__"})
_CALLED_BY_C = ("warnings", "weakref", "logging")
_AGAIN = 0.05  # seconds between one look for a safe line and the next
_LOOK = 0.25  # seconds between one look at what runs and the next
_Tracer = Callable[[FrameType, str, object], "_Tracer | None"]


try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


def checked_bytes(asked: float | str | None) -> float | None:
    """max_memory as a number of bytes; None where none was asked for. Raises InputError for what is no such number."""
    if asked is None:
        return None
    if isinstance(asked, str):
        written = re.fullmatch(r"\s*(\d+\.?\d*)\s*([a-zA-Z]*)\s*", asked)
        if written is not None and written[2].lower() in _UNITS:
            asked = float(written[1]) * _UNITS[written[2].lower()]
    if isinstance(asked, bool) or not isinstance(asked, int | float) or not asked > 0:
        raise InputError(f"max_memory={asked!r}: give the bytes that one run may take, such as 2e9 or '2GB', or None")
    return float(asked)


@contextlib.contextmanager
def addresses_limited(bytes: float) -> Iterator[None]:
    """A block in which the process gets at most about `bytes` more memory than it has. Beyond it, allocations fail.

    Only on Linux, without CUDA, and where no other thread of Python runs, since the limit holds for all of them.
    """
    used = _addresses() if math.isfinite(bytes) and _is_alone() else None
    if used is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    threads = max(os.cpu_count() or 1, torch.get_num_threads())
    wanted = int(used + bytes) + _SPARE + threads * _SPARE_FOR_A_THREAD
    if before[0] != resource.RLIM_INFINITY and before[0] <= wanted:
        yield
        return
    with undone(lambda: resource.setrlimit(resource.RLIMIT_AS, before)):
        resource.setrlimit(resource.RLIMIT_AS, (wanted, before[1]))
        yield


def _addresses() -> int | None:
    """The bytes of the process's address space; None where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def _is_alone() -> bool:
    if resource is None or torch.cuda.is_initialized():
        return False
    others = (one for one in threading.enumerate() if not one.name.startswith(_OWN_THREADS))
    return all(one is threading.current_thread() for one in others)


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the system gave no more memory."""
    return isinstance(error, MemoryError) or _REFUSED.search(said_by(error)[:2000]) is not None


def peak_of_process(children: bool = False) -> int | None:
    """The most bytes that this process has had in memory so far; None where the system does not say (Windows).

    children: the most that one of those had that it started and that have ended.
    """
    if resource is None:
        return None
    peak: int = resource.getrusage(resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if os.uname().sysname == "Darwin" else 1024)


class TimeLimit(BaseException):
    """Raised by `limited` at its limit. Not an Exception: exporters catch those, and go on trying.

    seconds: the limit. processor: whether it counts the process's processor time.
    """

    def __init__(self, seconds: float, processor: bool = False) -> None:
        super().__init__(f"more than {seconds:g} s{' of processor time' if processor else ''}")
        self.seconds, self.processor = seconds, processor


@contextlib.contextmanager
def limited(seconds: float | None, processor: bool = False, inside: str = "") -> Iterator[None]:
    """Raise TimeLimit inside the block after `seconds` (None: never): at a safe line of Python, or at its end.

    processor: count the processor time of the process, all threads together, and not the clock's: a machine that does
    much else then stops the block at the same point. inside: count what of it is spent in code of this package alone,
    or in what that calls.

    In other threads than the main one, and on Windows, the block runs to its end. An alarm of somebody else, such as
    pytest-timeout's, is set again at the end, for the time that it had left. So is a debugger's trace function.
    """
    usable = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if seconds is None or not usable:
        yield
        return
    clock = time.process_time if processor else time.monotonic
    timer, number = (signal.ITIMER_PROF, signal.SIGPROF) if processor else (signal.ITIMER_REAL, signal.SIGALRM)
    alarm, start = _Alarm(TimeLimit(seconds, processor), sys._getframe(), inside), clock()
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
        signal.setitimer(timer, *(_LOOK, _LOOK) if inside else (max(seconds, 0.01), _AGAIN))
        yield
    if alarm.late:
        raise TimeLimit(seconds, processor)


class _Alarm:
    """Looks for a safe line once the time is up, and again if what it raised there was swallowed: an exception in a
    destructor, say, ends there. late: whether the time is up."""

    def __init__(self, limit: TimeLimit, block: FrameType, inside: str) -> None:
        self._limit = (limit.seconds, limit.processor)
        self._inside, self._spent = inside, 0.0
        self._base = _caller(block)
        self._raised: weakref.ref[TimeLimit] | None = None
        self._tracer = sys.gettrace()  # of a debugger, say
        self._watching = False
        self._watched: list[tuple[FrameType, object]] = []
        self.late = False

    def rung(self, _signal: int, frame: FrameType | None) -> None:
        """The time is up, or a look is due whether it is; called again and again until the block ends."""
        if self._inside and not self.late:
            self._spent += _LOOK * any(package_of(one) == self._inside for one, _ in walk_stack(frame))
            if self._spent < self._limit[0]:
                return
        self.late = True
        if self._watching or (self._raised is not None and _is_handled(self._raised())):
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


def _is_handled(limit: TimeLimit | None) -> bool:
    """Whether it is on its way out of the block. One that was swallowed may be alive as well: a hook for what
    destructors raise, such as pytest's, keeps it."""
    one = sys.exc_info()[1]
    while one is not None and one is not limit:
        one = one.__context__
    return one is not None


def _caller(block: FrameType) -> FrameType:
    """The frame of the `with` statement: the generator is started by contextlib."""
    frame: FrameType | None = block.f_back
    while frame is not None and frame.f_globals.get("__name__") == "contextlib":
        frame = frame.f_back
    assert frame is not None
    return frame


def safe_frames(start: FrameType | None, base: FrameType) -> list[FrameType]:
    """The frames, from `start` outwards to `base`, without that one, of which safe lines may be ended."""
    frames: list[FrameType] = []
    while start is not None and start is not base:
        if start.f_code.co_name in _CLEANING or package_of(start) in _CALLED_BY_C:
            frames.clear()  # those that this one called
        elif may_end(start):
            frames.append(start)
        start = start.f_back
    return frames


def is_safe(frame: FrameType, base: FrameType) -> bool:
    """Whether the line that `frame` is about to run may be ended."""
    return (
        may_end(frame)
        and frame.f_lineno not in _guarded_lines(frame.f_code.co_filename)
        and any(frame is one for one in safe_frames(frame, base))
    )


def may_end(frame: FrameType) -> bool:
    """Whether there are lines in the code of `frame` that may be ended, as far as its module tells."""
    return _module_may_end(str(frame.f_globals.get("__name__", "")))


@functools.cache
def _module_may_end(name: str) -> bool:
    if f"{name}.".startswith(_ENDED):
        return name != _MACHINERY
    return name.partition(".")[0] not in _NOT_ENDED


@functools.lru_cache(maxsize=256)
def _guarded_lines(file: str) -> frozenset[int]:
    """The lines of a file that change something for a time, or put it back. None are known where it has no source."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return frozenset()
    return frozenset(line for node in ast.walk(tree) for line in _guarded(node))


def _guarded(node: ast.AST) -> Iterator[int]:
    if isinstance(node, (ast.With, ast.AsyncWith)):
        # Python is at these lines again when it leaves the block, and no longer inside it.
        yield from range(node.lineno, max(item.context_expr.end_lineno or 0 for item in node.items) + 1)
    elif isinstance(node, ast.Try):
        yield node.lineno
        blocks: list[ast.excepthandler | ast.stmt] = [*node.handlers, *node.finalbody]
        for one in blocks:
            yield from range(one.lineno, (one.end_lineno or one.lineno) + 1)
