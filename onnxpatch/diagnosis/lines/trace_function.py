"""Installs a trace function (sys.settrace) for a block, and puts the one before it back."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import FrameType

from onnxpatch.process import undone

TraceFunction = Callable[[FrameType, str, object], "TraceFunction | None"]
"""Called with (frame, event, argument); returns the function for the lines of that frame, or None."""


@contextlib.contextmanager
def tracing_with(follow: TraceFunction) -> Iterator[None]:
    """Inside the block, `follow` is the trace function of this thread. Debuggers and coverage get theirs back."""
    before = sys.gettrace()
    with undone(lambda: sys.settrace(before)):
        sys.settrace(follow)
        yield
