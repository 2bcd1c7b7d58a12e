"""The captures that run in the current thread, for hooks that cannot be passed one: builtins, methods of SymInt."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxpatch.control_flow.capture import Capture


# Another thread may export another model, or run this one in eager, at the same time.
class _ThreadCaptures(threading.local):
    def __init__(self) -> None:
        self.captures: list[Capture] = []


_thread = _ThreadCaptures()


def captures() -> list[Capture]:
    """The captures that run in this thread, the innermost last. A capture adds itself here while it runs."""
    return _thread.captures


def running() -> Capture | None:
    """The innermost capture of this thread; None where none runs or it is paused."""
    capture = latest()
    return None if capture is None or capture.paused else capture


def latest() -> Capture | None:
    """The innermost capture of this thread, paused or not; None where none runs."""
    return _thread.captures[-1] if _thread.captures else None
