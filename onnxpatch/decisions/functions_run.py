"""`Function`: a function of the model that has run, with its conditional jumps, its callers and what it was given.

And what it is doing at the instruction that it runs: its columns, a subscript, the text of a message.
`if x.any() and y.any():` decides twice in one line. From Python 3.11 on, the byte code has the columns of each
instruction. An instruction's name tells a subscript from a call.
"""

from __future__ import annotations

import copy
import dis
import functools
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType, TracebackType
from typing import Any, Literal

from onnxpatch.messages.user_code import code_within, is_user_frame, user_frame

Kind = Literal["plain", "tensor", "container", "module", "other"]
Caller = tuple[int, int]  # the number of the calling function, or OUTSIDE; the offset of the call
_SHORT = 160  # bytes of code, which are some thirty instructions
_FORMATS = ("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC")  # up to Python 3.12; from 3.13
OUTSIDE = -1  # the number of whoever called the model itself


@functools.lru_cache(maxsize=2048)
def instructions_of(code: CodeType) -> tuple[dis.Instruction, ...]:
    """The instructions of a code object, which several readers ask for."""
    return tuple(dis.get_instructions(code))


@dataclass(eq=False)
class Function:
    """One code object of the model's.

    jumps: by the offset of each conditional jump, where it falls through to and where it jumps to. lines: those on
    which one stands. begins: by the offset at which the instruction is reached, its own: a long jump has a prefix.
    names: by the offset of a jump that tests a local name, that name.
    callers: who called it, and how often that was looked at. kinds: what its arguments were, by name, by (name, key)
    what was in `**kwargs`, and by (name, "0") what was first in `*args`: "plain" for None, numbers and text, "tensor"
    for one of the inputs or computed from them, "container" for a tuple, list or dict with such tensors. tested,
    returns: the same of the names that jumps test, by offset, and of what it returned, by caller; with how often each
    was looked at. given: numbers, texts and short containers of them among the arguments, and in the closure.
    calling: the one place's function, where this is the function as it is called from there; depth: how many of these
    stand behind each other.
    """

    number: int
    code: CodeType
    globals: dict[str, Any]
    jumps: dict[int, tuple[int, int]] = field(default_factory=dict)
    lines: set[int] = field(default_factory=set)
    begins: dict[int, int] = field(default_factory=dict)
    callers: dict[Caller, int] = field(default_factory=dict)
    returns: dict[Caller, tuple[set[Kind], int]] = field(default_factory=dict)
    kinds: dict[str | tuple[str, str], set[Kind]] = field(default_factory=dict)
    given: dict[str, object] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    tested: dict[int, tuple[set[Kind], int]] = field(default_factory=dict)
    done: bool = False
    calling: Function | None = None
    depth: int = 0

    def __post_init__(self) -> None:
        line, start, name = self.code.co_firstlineno, -1, ""
        instructions = instructions_of(self.code)
        for one, following in zip(instructions, [*instructions[1:], None], strict=True):
            line = instruction_line(one) or line
            if one.opname == "EXTENDED_ARG":
                start = one.offset if start < 0 else start
                continue
            if is_conditional(one) and following is not None:
                self.jumps[one.offset] = (following.offset, int(one.argval))
                self.lines.add(line)
                self.names |= {one.offset: name} if name else {}
                self.begins |= {one.offset if start < 0 else start: one.offset, one.offset: one.offset}
            start = -1
            if one.opname != "CACHE" and one.opname != "TO_BOOL":
                name = str(one.argval) if one.opname.startswith("LOAD_FAST") and isinstance(one.argval, str) else ""

    @functools.cached_property
    def is_short(self) -> bool:
        """Whether it is a helper, `exists` or `default`: looked at anew for each place that calls it."""
        return len(self.code.co_code) <= _SHORT and not self.code.co_freevars

    def at_site(self, calling: Function, caller: Caller) -> Function:
        """The same function with one caller."""
        made = copy.copy(self)
        made.callers, made.calling, made.depth = {caller: 1}, calling, calling.depth + 1
        return made

    @functools.cached_property
    def gathering(self) -> tuple[str, ...]:
        """The names of `*args` and `**kwargs`; not of an `*args` that the function assigns anew: places move."""
        count = self.code.co_argcount + self.code.co_kwonlyargcount
        places = self.code.co_varnames[count : count + bool(self.code.co_flags & 4)]
        count += len(places)
        stored = {one.argval for one in instructions_of(self.code) if one.opname == "STORE_FAST"}
        keys = self.code.co_varnames[count : count + bool(self.code.co_flags & 8)]
        return *(name for name in places if name not in stored), *keys

    @property
    def inner(self) -> Iterator[CodeType]:
        """The code of the lambdas, comprehensions and functions inside of it."""
        yield from itertools.islice(code_within(self.code), 1, None)


def is_conditional(one: dis.Instruction) -> bool:
    """Whether an instruction jumps or not, by a value."""
    return "JUMP" in one.opname and "_IF_" in one.opname


def instruction_line(one: dis.Instruction) -> int:
    """The line of an instruction; 0 where that is not known, or (before Python 3.11) not another one."""
    positions = getattr(one, "positions", None)  # Python 3.10 has none
    found = positions.lineno if positions is not None else one.starts_line
    return int(found) if found and not isinstance(found, bool) else 0


@functools.lru_cache(maxsize=1024)
def _positions(code: CodeType) -> list[tuple[int | None, ...]]:
    return list(code.co_positions())


def position(code: CodeType, at: int) -> tuple[int, ...]:
    """(line, column, last line, last column) of an instruction; (line,) where Python keeps no columns."""
    if hasattr(code, "co_positions"):  # one for each unit of two bytes
        found = _positions(code)[at // 2 : at // 2 + 1]
        if found and None not in found[0]:
            line, last, column, end = found[0]
            return (line, column, last, end)  # type: ignore[return-value]
    lines = [line for start, end, line in code.co_lines() if start <= at < end and line is not None]
    return (lines[0] if lines else 0,)


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


def columns(code: CodeType, at: int) -> tuple[int, int]:
    """Columns of an instruction in the source; its offset where Python keeps no columns (3.10)."""
    # Not the offset itself: a `while` has its condition twice in the byte code, and once in the source.
    place = position(code, at)
    return (place[1], place[3]) if len(place) == 4 else (at, at)


def subscripting() -> bool:
    """Whether the user's code is at `something[...]` of a Python list or tuple."""
    return _runs("BINARY_SUBSCR")


def unpacking() -> bool:
    """Whether the user's line unpacks into names: `q, k, v = qkv`."""
    return _runs("UNPACK_SEQUENCE")


def _runs(*names: str) -> bool:
    frame = user_frame(sys._getframe(2))
    return frame is not None and dis.opname[frame.f_code.co_code[instruction(frame)]] in names


def iterated(frame: FrameType | None = None) -> bool:
    """Whether a `for` takes what the call that runs now returns: `for row in x.unbind(1)`. frame: that of the call;
    left out, the user's."""
    names = _following(frame or user_frame(sys._getframe(1)))
    return next((name for name in names if name not in ("CACHE", "CALL")), "") == "GET_ITER"


def in_message_text() -> bool:
    """Whether the user's code is making a text that nothing reads: of an error, in a `raise` or behind the comma of an
    `assert`, or an f-string in a statement that drops its value, such as a warning."""
    # An expression has none of these; what ends it says whether it was raised.
    following = _following(user_frame(sys._getframe(1)))
    ends = (name for name in following if name.startswith(("RAISE", "STORE", "RETURN", "POP", "JUMP", "FOR_ITER")))
    end = next(ends, "")
    return end.startswith("RAISE") or (end == "POP_TOP" and _runs(*_FORMATS))


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
