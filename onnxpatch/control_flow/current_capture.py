"""Which capture is running in this thread: asked by hooks that no object can be handed to."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxpatch.control_flow.capture import Capture


class _Running(threading.local):
    def __init__(self) -> None:
        self.captures: list[Capture] = []


_running = _Running()


def captures() -> list[Capture]:
    """The captures that are running in this thread, the innermost last."""
    return _running.captures


def running() -> Capture | None:
    """The capture that is running in this thread, unless it is paused."""
    capture = _running.captures[-1] if _running.captures else None
    return None if capture is None or capture.paused else capture


def latest() -> Capture | None:
    """The capture that is running in this thread, paused or not."""
    return _running.captures[-1] if _running.captures else None
