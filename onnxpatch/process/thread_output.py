"""What one thread prints and warns of: taken or dropped for the time of a block, and left as it is for other threads.

sys.stdout, sys.stderr and warnings.showwarning belong to the process. If two threads replaced them and put back what
they found, the second would put back the first one's, for good. Here one stand-in serves all threads; it asks what the
calling thread wants, and goes with the last block. The filters of warnings are a list: each block adds its own entries,
which match in its thread alone, and takes them out again.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TextIO

from onnxpatch.process.undone import Shared, undone

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
