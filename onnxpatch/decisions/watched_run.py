"""Watches one run of a model: tells a `SidesTaken` which functions, lines and branches it goes through.

From Python 3.12 on `sys.monitoring` is used, which costs next to nothing once an instruction has gone both ways;
before, the lines that decide are traced. Both are undone at the end of the run.
"""

from __future__ import annotations

import functools
import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from onnxpatch.decisions.functions_run import Caller, Function
from onnxpatch.decisions.sides_taken import SidesTaken, Taken
from onnxpatch.process import undone

_MOST_EVENTS = 20_000  # of one call: a loop of so many rounds has shown its sides


@contextmanager
def watched_run(record: SidesTaken) -> Iterator[Taken]:
    """Record what is run inside, in this thread."""
    record.taken = taken = Taken()
    how = _monitored if hasattr(sys, "monitoring") else _traced
    with _no_collection(), how(record) as able:
        record.able &= able
        yield taken


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector off for one run: callbacks of `gc` would stand where the model makes a call."""
    if not gc.isenabled():
        yield
        return
    with undone(gc.enable):
        gc.disable()
        yield


# ------------------------------------------------------------------ before Python 3.12
@contextmanager
def _traced(record: SidesTaken) -> Iterator[bool]:
    if sys.gettrace() is not None:  # a debugger, or a measurement of coverage: theirs stays
        yield False
        return
    taken, base, passed_over = record.taken, sys._getframe(), record.passed_over

    def called(frame: FrameType, event: str, arg: object) -> Any:
        # torch's own are most of what is called: thousands of calls for one of the model's.
        one = record.function(frame) if id(frame.f_code) not in passed_over else None
        if one is None:
            return None
        caller = record.called(one, frame, base)
        frame.f_trace_opcodes = False
        return None if one.done else _local(record, one, taken, caller)

    with undone(lambda: sys.settrace(None)):
        sys.settrace(called)
        yield True


def _local(record: SidesTaken, one: Function, taken: Taken, caller: Caller) -> Any:
    """The tracer of one call: the lines, and on lines that decide every instruction."""
    number, jumps, lines, begins, chosen = one.number, one.jumps, one.lines, one.begins, record.choices[one]
    pending, events = -1, 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal pending, events
        if event != "opcode" and event != "line":
            pending = -1
            if event == "return":
                record.returned(one, caller, arg)
            return trace
        at = frame.f_lasti
        if pending >= 0 and at != pending:
            taken.jumps.add((number, pending, at != jumps[pending][0]))
            pending = -1
        if event == "line":
            line = frame.f_lineno
            taken.lines.add((number, line))
            frame.f_trace_opcodes = line in lines
            if line in chosen:
                record.choose(one, frame)
        if at in begins:
            pending = begins[at]
            record.tested(one, pending, frame)
        events += 1
        if events > _MOST_EVENTS:
            frame.f_trace_opcodes = False
            return None
        return trace

    return trace


# ------------------------------------------------------------------ from Python 3.12 on
@contextmanager
def _monitored(record: SidesTaken) -> Iterator[bool]:
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]  # what mypy is told is the lowest version
    tool = next((one for one in (4, 3, 5, 2, 1) if monitoring.get_tool(one) is None), None)
    if tool is None:
        yield False
        return
    monitoring.use_tool_id(tool, "onnxpatch")
    watch = _Watch(record, monitoring, tool, sys._getframe())
    with undone(watch.stop):
        watch.start()
        yield True


class _Watch:
    """The callbacks of `sys.monitoring` for one run. They come for every thread of the process."""

    def __init__(self, record: SidesTaken, monitoring: Any, tool: int, base: FrameType) -> None:
        self.record, self.monitoring, self.tool, self.base = record, monitoring, tool, base
        self.taken, self.thread = record.taken, threading.get_ident()
        events = monitoring.events
        # 3.14 tells the two ways of a branch apart.
        names = [name for name in ("BRANCH_LEFT", "BRANCH_RIGHT") if hasattr(events, name)] or ["BRANCH"]
        self.branches = [getattr(events, name) for name in names]
        self.watched: dict[int, CodeType] = {}
        self.callers: dict[int, Caller] = {}  # by the frame that runs

    def start(self) -> None:
        """Watch every function that starts, and what it decides."""
        events = self.monitoring.events
        self.monitoring.register_callback(self.tool, events.PY_START, self.started)
        self.monitoring.register_callback(self.tool, events.LINE, self.line)
        self.monitoring.register_callback(self.tool, events.PY_RETURN, self.returned)
        for one in self.branches:
            self.monitoring.register_callback(self.tool, one, self.branched)
        self.monitoring.restart_events()
        self.monitoring.set_events(self.tool, events.PY_START)

    def stop(self) -> None:
        """Watch nothing any more, and let another tool have the place; nothing where that is done."""
        if self.monitoring.get_tool(self.tool) is None:
            return
        self.monitoring.set_events(self.tool, 0)
        for code in self.watched.values():
            self.monitoring.set_local_events(self.tool, code, 0)
        events = self.monitoring.events
        for one in (events.PY_START, events.PY_RETURN, events.LINE, *self.branches):
            self.monitoring.register_callback(self.tool, one, None)
        self.monitoring.free_tool_id(self.tool)

    def started(self, code: CodeType, offset: int) -> object:
        """A function starts."""
        if threading.get_ident() != self.thread:
            return None
        frame = sys._getframe(1)
        one = self.record.function(frame)
        if one is None:
            return self.monitoring.DISABLE
        self.callers[id(frame)] = self.record.called(one, frame, self.base)
        if not one.done and id(code) not in self.watched:
            self.watched[id(code)] = code
            events = self.monitoring.events
            wanted = functools.reduce(lambda a, b: a | b, self.branches) | events.LINE | events.PY_RETURN
            self.monitoring.set_local_events(self.tool, code, wanted)
        return None

    def returned(self, code: CodeType, offset: int, value: object) -> None:
        """A function returns."""
        caller = self.callers.pop(id(sys._getframe(1)), None) if threading.get_ident() == self.thread else None
        one = self.record.by_code(code)
        if one is not None and caller is not None:
            self.record.returned(one, caller, value)

    def line(self, code: CodeType, line: int) -> object:
        """A line starts; each is told once in a run, but for those that choose."""
        if threading.get_ident() != self.thread:
            return None
        one = self.record.by_code(code)
        if one is None:
            return self.monitoring.DISABLE
        self.taken.lines.add((one.number, line))
        if line not in self.record.choices[one]:
            return self.monitoring.DISABLE
        self.record.choose(one, sys._getframe(1))
        return None

    def branched(self, code: CodeType, offset: int, to: int) -> object:
        """A branch was taken, or not; told until both have been."""
        if threading.get_ident() != self.thread:
            return None
        one = self.record.by_code(code)
        if one is None or offset not in one.jumps:
            return self.monitoring.DISABLE
        self.record.tested(one, offset, sys._getframe(1))
        jumped = to == one.jumps[offset][1]
        self.taken.jumps.add((one.number, offset, jumped))
        both = (one.number, offset, not jumped) in self.taken.jumps
        return self.monitoring.DISABLE if both else None
