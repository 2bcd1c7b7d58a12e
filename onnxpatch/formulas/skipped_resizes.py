"""Remembers shortcuts past a resize that a patch skipped, and when eager would have taken them.

if npatch == N: return self.pos_embed      the patch answers False, so that the graph has the resize
F.interpolate(...)                         and the resize copies its input where npatch == N
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import FrameType

from torch import Tensor


# Of the thread: another thread may export another model, and its frames are none of this one's callers.
class _Skipped(threading.local):
    """(frame, 0-d bool tensor: whether eager takes the shortcut) of the functions that run in this thread."""

    def __init__(self) -> None:
        self.entries: list[tuple[FrameType, Tensor]] = []


_skipped = _Skipped()


def remember(frame: FrameType, native: Tensor) -> None:
    """Note that `frame` will run a resize which eager skips if `native` (0-d bool tensor) is true."""
    _skipped.entries = [entry for entry in _skipped.entries if entry[0] in _frames() and entry[0] is not frame]
    _skipped.entries.append((frame, native))


def native_here() -> Tensor | None:
    """Whether the calling functions skip the resize in eager (0-d bool tensor); None if they have no shortcut.

    A resize with an offset is not the identity at the training size, so it must be skipped there.
    """
    standing = _frames()
    # A frame that has returned is dropped here: it would keep the locals of the function alive.
    _skipped.entries = [entry for entry in _skipped.entries if entry[0] in standing]
    found = [native for _, native in _skipped.entries]
    # The innermost: a function that resizes may be called by another one with a shortcut of its own.
    return found[-1] if found else None


def _frames() -> list[FrameType]:
    return list(_walk(sys._getframe(1)))


def _walk(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
