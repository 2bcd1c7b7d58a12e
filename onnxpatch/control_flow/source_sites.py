"""Where in the user's code something happened."""

from __future__ import annotations

import dis
import functools
import itertools
import sys
from dataclasses import dataclass
from types import CodeType, FrameType, TracebackType

from onnxpatch.messages.user_code import is_user_frame, user_frame, user_frames

_RAISE = dis.opmap["RAISE_VARARGS"]


@dataclass(frozen=True)
class Site:
    """A place in a source file; `at` tells two decisions in one line apart."""

    file: str
    line: int
    function: str
    at: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


_UNKNOWN = Site("<unknown>", 0, "<unknown>")


def instruction(frame: FrameType) -> int:
    """Where in its code a frame stands. Python's own figure moves into the inline cache once a line has warmed up,
    and from one half of a call to the other (3.11)."""
    code, at = frame.f_code.co_code, _without_cache(frame.f_code.co_code, frame.f_lasti)
    before = _without_cache(code, at - 2) if at > 1 and dis.opname[code[at]] == "CALL" else at
    return before if dis.opname[code[before]] == "PRECALL" else at


def _without_cache(code: bytes, at: int) -> int:
    while at > 0 and dis.opname[code[at]] == "CACHE":
        at -= 2
    return at


def here() -> Site:
    """The line of the user's code that is running."""
    frame = user_frame(sys._getframe(1))
    if frame is None:
        return _UNKNOWN
    return Site(
        frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, _column(frame.f_code, instruction(frame))
    )


@functools.lru_cache(maxsize=1024)
def _column(code: CodeType, at: int) -> tuple[int, int]:
    """Columns in the source: a `while` has its condition twice in the code, once in the source. (Python 3.11)"""
    if not hasattr(code, "co_positions"):
        return at, at
    _, _, first, last = next(itertools.islice(code.co_positions(), at // 2, None), (None,) * 4)
    return (at, at) if first is None or last is None else (first, last)


def raised_on_purpose(error: BaseException) -> bool:
    """Whether a `raise` or `assert` statement raised the error, rather than a call that failed."""
    at: TracebackType | None = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None or not is_user_frame(at.tb_frame):
        return False
    return at.tb_frame.f_code.co_code[at.tb_lasti] == _RAISE


def line_of(error: BaseException) -> Site:
    """The innermost line of the user's in an error's traceback."""
    lines = list(user_frames(error))
    if not lines:
        return _UNKNOWN
    frame, line = lines[-1]
    return Site(frame.f_code.co_filename, line, frame.f_code.co_name)


def subscripting() -> bool:
    """Whether the user's line is looking something up in a Python list or tuple."""
    frame = user_frame(sys._getframe(1))
    return frame is not None and dis.opname[frame.f_code.co_code[instruction(frame)]] == "BINARY_SUBSCR"
