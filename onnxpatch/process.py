"""What a process's threads share: changes that an interrupt must not leave behind, stdout, stderr, warnings, the log.

`undone` undoes a change at the end of a block, even if a KeyboardInterrupt comes while it is being undone.

What one thread prints and warns of is taken or dropped for the time of a block, and left as it is for other threads.
sys.stdout, sys.stderr and warnings.showwarning belong to the process. If two threads replaced them and put back what
they found, the second would put back the first one's, for good. Here one stand-in serves all threads; it asks what the
calling thread wants, and goes with the last block. The filters of warnings are a list: each block adds its own entries,
which match in its thread alone, and takes them out again.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TextIO

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


# ("stdout" or "stderr", text, name of the module that writes) -> whether the text is taken.
Taker = Callable[[str, str, str], bool]
# As warnings.showwarning: (message, category, filename, lineno, file, line).
Show = Callable[..., None]


@contextlib.contextmanager
def printed(take: Taker) -> Iterator[None]:
    """Inside the block, what this thread prints is offered to `take`: what it answers False for is printed."""
    with _STREAMS.held(), _added(_takers, take):
        yield


@contextlib.contextmanager
def warned(show: Callable[[Show], Show]) -> Iterator[None]:
    """Inside the block, warnings in this thread go to `show(before)`; before: where they would go without it."""
    with _SHOWN.held(), _added(_shows, show(_innermost(_before[-1]))):
        yield


@contextlib.contextmanager
def filtered(
    action: Literal["always", "ignore"], category: type[Warning] = Warning, module: object = None, last: bool = False
) -> Iterator[None]:
    """Inside the block, a filter for warnings is in force in this thread.

    module: a compiled expression for the module that is warned about. last: after all others that are there.
    """
    # Python asks `match` of the second, which is an expression for the text elsewhere.
    entry: Any = (action, _InThisThread(), category, module, 0)

    def remove() -> None:
        entry[1].over = True  # the list may be one that another thread's `catch_warnings` brings back
        if entry in warnings.filters:
            warnings.filters.remove(entry)  # type: ignore[attr-defined]

    with undone(remove):
        warnings.filters.insert(len(warnings.filters) if last else 0, entry)  # type: ignore[attr-defined]
        _forget_shown()
        yield


class _InThisThread:
    """In the place of an expression for a warning's text: matches all that the thread that made it warns of."""

    def __init__(self) -> None:
        self.over = False
        self._thread = threading.get_ident()

    def match(self, _text: str) -> bool:
        return not self.over and threading.get_ident() == self._thread


class _UnusedWarning(Warning):
    """Nobody warns with it."""


def _forget_shown() -> None:
    """Python notes which warnings it has shown, until the filters change by a function of `warnings`."""
    warnings.simplefilter("ignore", _UnusedWarning, append=True)
    unused: Any = ("ignore", None, _UnusedWarning, None, 0)
    with contextlib.suppress(ValueError):  # another thread has taken it out
        warnings.filters.remove(unused)  # type: ignore[attr-defined]


# ------------------------------------------------------------------ what each thread asked for
_takers: dict[int, list[Taker]] = {}
_shows: dict[int, list[Show]] = {}


@contextlib.contextmanager
def _added(asked: dict[int, list[Any]], one: object) -> Iterator[None]:
    thread = threading.get_ident()
    before = asked.get(thread, [])

    def remove() -> None:
        if before:
            asked[thread] = before
        else:
            asked.pop(thread, None)

    with undone(remove):
        asked[thread] = [*before, one]
        yield


# ------------------------------------------------------------------ what serves all threads
class _Stream:
    """sys.stdout or sys.stderr without what the calling thread takes."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name, self._stream = name, stream

    def write(self, text: str) -> int:
        """Write, unless the thread takes it."""
        return self._written(text, str(sys._getframe(1).f_globals.get("__name__", "")))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each, unless the thread takes it."""
        writer = str(sys._getframe(1).f_globals.get("__name__", ""))
        for line in lines:
            self._written(line, writer)

    def isatty(self) -> bool:
        """False for a closed one, which raises: torch.export asks."""
        return not self._stream.closed and self._stream.isatty()

    def _written(self, text: str, writer: str) -> int:
        takers = _takers.get(threading.get_ident(), ())
        taken = any(take(self._name, text, writer) for take in reversed(takers))
        return len(text) if taken else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def _streams_divided() -> Iterator[None]:
    # None in a program without a terminal: there print() does nothing.
    before = {name: stream for name in ("stdout", "stderr") if (stream := getattr(sys, name)) is not None}

    def put_back() -> None:
        for name, stream in before.items():
            setattr(sys, name, stream)

    with undone(put_back):
        for name, stream in before.items():
            setattr(sys, name, _Stream(name, stream))
        yield


# warnings.showwarning of the process, while the stand-in is in its place.
_before: list[Show] = []


def _innermost(before: Show) -> Show:
    shows = _shows.get(threading.get_ident())
    return shows[-1] if shows else before


@contextlib.contextmanager
def _showing_divided() -> Iterator[None]:
    before = warnings.showwarning

    # It knows what was before by itself: another thread may be on its way here when the last block ends.
    def show(*warning: object, **named: object) -> None:
        _innermost(before)(*warning, **named)

    def put_back() -> None:
        warnings.showwarning = before
        _before.clear()

    with undone(put_back):
        _before[:] = [before]
        warnings.showwarning = show
        yield


_STREAMS, _SHOWN = Shared(_streams_divided), Shared(_showing_divided)
