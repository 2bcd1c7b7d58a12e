"""Shortcuts past a resize that a running function was made to pass by, and where eager would have taken them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import FrameType

from torch import Tensor


class _Skipped(threading.local):
    """Shortcuts that running functions were made to pass by: (frame, where eager would have taken it)."""

    def __init__(self) -> None:
        self.entries: list[tuple[FrameType, Tensor]] = []


_skipped = _Skipped()


def remember(frame: FrameType, native: Tensor) -> None:
    """`frame` runs a resize that eager leaves out where `native` (0-d bool tensor) is true."""
    _skipped.entries = [entry for entry in _skipped.entries if entry[0] in _frames() and entry[0] is not frame]
    _skipped.entries.append((frame, native))


def native_here() -> Tensor | None:
    """Where the calling functions would have left the resize out (0-d bool tensor), had they been asked at run time.

    A resize with an offset is not the identity at the trained size, so it has to be left out there.
    """
    standing = _frames()
    _skipped.entries = [entry for entry in _skipped.entries if entry[0] in standing]
    found = [native for _, native in _skipped.entries]
    return found[-1] if found else None


def _frames() -> list[FrameType]:
    return list(_walk(sys._getframe(1)))


def _walk(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
