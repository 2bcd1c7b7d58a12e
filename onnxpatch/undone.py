"""Undoes a change at the end of a block, even if a KeyboardInterrupt comes while it is being undone."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator

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
        # Reentrant: an interrupt may leave this thread with the lock, and it must still be able to undo.
        self._lock = threading.RLock()

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


def release(lock: threading.RLock) -> None:
    """Release a lock that an interrupt at the end of a `with` block may have left acquired by this thread."""
    with contextlib.suppress(RuntimeError):  # raised if this thread has not acquired it
        while True:
            lock.release()
