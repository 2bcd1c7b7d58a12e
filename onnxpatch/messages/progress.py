"""Lines on stderr that say how far a call is: `progress=True`, and where an exporter stands that takes long."""

from __future__ import annotations

import contextlib
import itertools
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from onnxpatch.messages.text import one_line, relative
from onnxpatch.messages.user_code import is_user_frame, runs_in

Progress = Callable[[str, int, int], None]
_WIDTH = 72  # of the line, so that a shorter one covers a longer one before it
LONG = 55.0
"""Seconds after which a call says that it goes on."""


def shown(progress: Progress | bool | None) -> Progress | None:
    """What to call with (stage, done, of): the caller's own function, one that writes on stderr for True, or none."""
    if isinstance(progress, bool):
        return _written if progress else None
    return progress


def _written(stage: str, done: int, of: int) -> None:
    count = f" {done + 1} of {of}" if of else f" {done + 1}"
    line = f"onnxpatch: {one_line(stage)}{count}"[:_WIDTH]
    tell(f"\r{line:<{_WIDTH}}", end="\n" if of and done + 1 >= of else "")


def tell(text: str, end: str = "\n") -> None:
    """Print on stderr, if it is there and can be written: what is told changes nothing."""
    # print() takes None, a closed stderr, for stdout; a stream that Python code closed raises ValueError.
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(text, end=end, file=sys.stderr, flush=True)


@contextlib.contextmanager
def told_when_late(what: str, remedy: str, after: float = LONG) -> Iterator[None]:
    """Says once on stderr, if the block takes longer than `after` seconds, which line of the model it is at.

    what: the subject of that line, such as `dynamo export of Net`. remedy: what the caller can do about it.
    """
    caller = threading.get_ident()

    def tell_place() -> None:
        place = _place(sys._current_frames().get(caller))
        tell(f"onnxpatch: {one_line(f'{what} takes longer than {after:.0f} s, {place}: {remedy}')}")

    timer = threading.Timer(after, tell_place)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _is_pythons(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith(sysconfig.get_path("stdlib")) and "-packages" not in file


def _place(frame: FrameType | None) -> str:
    stack: list[FrameType] = []
    while frame is not None:
        stack.append(frame)
        frame = frame.f_back
    # What lies outside onnxpatch's attempts is the code that called the export, not the model.
    model = itertools.takewhile(lambda one: not runs_in(one, "onnxpatch.attempts"), stack)
    at = next((one for one in model if is_user_frame(one) and not _is_pythons(one)), None)
    return relative(f"at {at.f_code.co_filename}:{at.f_lineno}") if at is not None else "behind the model's own code"
