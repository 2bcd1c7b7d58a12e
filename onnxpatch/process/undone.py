"""Undoes a change at the end of a block, even if a KeyboardInterrupt comes while it is being undone."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

_numbers = itertools.count()


@contextlib.contextmanager
def undone(undo: Callable[[], object]) -> Iterator[None]:
    """Call `undo` at the end of the block; again, where an interrupt kept it from its end.

    So `undo` may be called again without harm, and before what it undoes was done: the change is made in the block.
    """
    # Two levels: KeyboardInterrupt can come between any two instructions, those of a `finally` included.
    done = False
    try:
        try:
            yield
        finally:
            undo()
            done = True
    finally:
        if not done:
            undo()


class Shared:
    """A change of the process that several threads may need at once: made for the first, undone after the last.

    If each thread undid it for itself, the second would put the first one's change back, and it would stay.
    """

    def __init__(self, change: Callable[[], contextlib.AbstractContextManager[object]]) -> None:
        self._change = change
        self._holders: set[int] = set()
        self._made = contextlib.ExitStack()
        self._lock = process_lock()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """A context in which the change is in force."""
        holder = next(_numbers)

        def leave() -> None:
            with self._lock:
                self._holders.discard(holder)
                if not self._holders:
                    self._made.close()
            release(self._lock)

        with undone(leave):
            with self._lock:
                first = not self._holders
                self._holders.add(holder)
                if first:
                    self._made.enter_context(self._change())
            yield


_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def process_lock() -> threading.RLock:
    """A lock of the process: free in a forked child, whichever other thread held it at that moment.

    It is reentrant: an interrupt may leave this thread with the lock, and it must still be able to undo.
    """
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def _free_locks() -> None:
    for lock in _locks:
        if not lock._is_owned():  # the thread that forked goes on in the child, within its own blocks
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_free_locks)


def release(lock: threading.RLock) -> None:
    """Release a lock that an interrupt at the end of a `with` block may have left acquired by this thread."""
    with contextlib.suppress(RuntimeError):  # raised if this thread has not acquired it
        while True:
            lock.release()
