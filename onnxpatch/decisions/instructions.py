"""What the user's code is doing at the instruction that it runs: its columns, a subscript, the text of an error.

`if x.any() and y.any():` decides twice in one line. From Python 3.11 on, the byte code has the columns of each
instruction. An instruction's name tells a subscript from a call.
"""

from __future__ import annotations

import dis
import functools
import itertools
import sys
from types import CodeType, FrameType, TracebackType

from onnxpatch.messages.user_code import is_user_frame, user_frame

_RAISE = dis.opmap["RAISE_VARARGS"]


def instruction(frame: FrameType) -> int:
    """The offset of the instruction that a frame runs."""
    # f_lasti points into the inline cache once a line has warmed up, and to either half of a call (3.11).
    code, at = frame.f_code.co_code, _without_cache(frame.f_code.co_code, frame.f_lasti)
    before = _without_cache(code, at - 2) if at > 1 and dis.opname[code[at]] == "CALL" else at
    return before if dis.opname[code[before]] == "PRECALL" else at


def _without_cache(code: bytes, at: int) -> int:
    while at > 0 and dis.opname[code[at]] == "CACHE":
        at -= 2
    return at


@functools.lru_cache(maxsize=1024)
def columns(code: CodeType, at: int) -> tuple[int, int]:
    """Columns of an instruction in the source; its offset where Python keeps no columns (3.10)."""
    # Not the offset itself: a `while` has its condition twice in the byte code, and once in the source.
    if not hasattr(code, "co_positions"):
        return at, at
    # co_positions has one entry for each unit of two bytes.
    _, _, first, last = next(itertools.islice(code.co_positions(), at // 2, None), (None,) * 4)
    return (at, at) if first is None or last is None else (first, last)


def subscripting() -> bool:
    """Whether the user's code is at `something[...]` of a Python list or tuple."""
    return _runs("BINARY_SUBSCR")


def unpacking() -> bool:
    """Whether the user's line unpacks into names: `q, k, v = qkv`."""
    return _runs("UNPACK_SEQUENCE")


def _runs(name: str) -> bool:
    frame = user_frame(sys._getframe(2))
    return frame is not None and dis.opname[frame.f_code.co_code[instruction(frame)]] == name


def iterated(frame: FrameType | None = None) -> bool:
    """Whether a `for` takes what the call that runs now returns: `for row in x.unbind(1)`. frame: that of the call;
    left out, the user's."""
    names = _following(frame or user_frame(sys._getframe(1)))
    return next((name for name in names if name not in ("CACHE", "CALL")), "") == "GET_ITER"


def in_error_text() -> bool:
    """Whether the user's code is making the text of an error: in a `raise`, or behind the comma of an `assert`."""
    # An expression has none of these; what ends it says whether it was raised.
    following = _following(user_frame(sys._getframe(1)))
    ends = (name for name in following if name.startswith(("RAISE", "STORE", "RETURN", "POP", "JUMP", "FOR_ITER")))
    return next(ends, "").startswith("RAISE")


def _following(frame: FrameType | None) -> list[str]:
    """The names of the instructions behind the one that a frame runs."""
    if frame is None:
        return []
    at = instruction(frame)
    return [one.opname for one in dis.get_instructions(frame.f_code) if one.offset > at]


def raised_on_purpose(error: BaseException) -> bool:
    """Whether a `raise` or `assert` statement raised the error, rather than a call that failed."""
    at: TracebackType | None = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None or not is_user_frame(at.tb_frame):
        return False
    # `assert` compiles to the same instruction. A call that fails in C has no frame of its own, and is no RAISE.
    return at.tb_frame.f_code.co_code[at.tb_lasti] == _RAISE
