"""The rows of a tensor, or the numbers of a range, as many as the input says: what a plain loop runs over.

A few stand-ins are handed out, and the loop is recorded. That is a loop over all rows only if the code takes them all.
`for row in x`, a comprehension, `list(x)` and `sum(f(row) for row in x)` do; `zip(x, weights)`, `map` and `islice` hand
rows on one at a time and may stop before the last, which three rounds do not show: refused.
"""

from __future__ import annotations

import ast
import dis
import inspect
import itertools
import linecache
import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from onnxpatch.control_flow.loops.inference import Loop
from onnxpatch.control_flow.source_sites import instruction
from onnxpatch.messages.user_code import user_frame

if TYPE_CHECKING:
    from onnxpatch.control_flow.capture import Capture

_STOPS_EARLY = "zip, map or another iterator takes its rows, and may stop before the last"


class Rows:
    """To be looped over. counts: in eager these are the numbers of a range, ints."""

    def __init__(self, capture: Capture, rows: torch.Tensor, counts: bool = False) -> None:
        self._capture, self._rows, self._counts = capture, rows, counts

    def __iter__(self) -> Iterator[torch.Tensor]:
        return _stand_ins(self._capture, self._rows, self._counts, _Taker())


class NumberedRows:
    """The same with their numbers, as `enumerate` gives them."""

    def __init__(self, capture: Capture, values: torch.Tensor, start: int) -> None:
        self._capture, self._values, self._start = capture, values, start

    def __iter__(self) -> Iterator[tuple[Any, torch.Tensor]]:
        numbers = self._capture.execute(torch.arange, (self._values.shape[0],), {"dtype": torch.int64})
        return self._pairs(iter(Rows(self._capture, numbers, counts=True)))

    def _pairs(self, numbers: Iterator[torch.Tensor]) -> Iterator[tuple[Any, torch.Tensor]]:
        for number in numbers:
            shown = number + self._start
            self._capture.counters.add(id(shown))
            yield shown, self._values[number]


def _stand_ins(capture: Capture, rows: torch.Tensor, counts: bool, taker: _Taker) -> Iterator[torch.Tensor]:
    """As many rows as are needed to see what the loop does."""
    frame = capture.frames[-1]
    loop = Loop(capture, rows)
    frame.open_loop(loop)
    for _ in range(frame.rounds):
        if not taker.takes_all():
            raise loop.refusal(_STOPS_EARLY)
        row = capture.execute(torch.select, (rows, 0, 0), {})
        if counts:
            capture.counters.add(id(row))
        loop.begin(row)
        yield row
        loop.end()
    frame.close_loop(loop)


class _Taker:
    """The user's code that asked for an iterator over rows, and where in it."""

    def __init__(self) -> None:
        frame = user_frame(sys._getframe(1))
        self._frame, self._at = frame, None if frame is None else instruction(frame)
        self._pulled_at: int | None = None

    def takes_all(self) -> bool:
        """Whether the code that asks for the next row asks for all of them."""
        frame = user_frame(sys._getframe(1))
        if frame is None or self._frame is None or self._at is None:
            return False
        if dis.opname[self._frame.f_code.co_code[self._at]] != "GET_ITER":
            return frame is self._frame and instruction(frame) == self._at  # one call, such as list(x), takes them
        return not frame.f_code.co_flags & inspect.CO_GENERATOR or self._exhausted(user_frame(frame.f_back))

    def _exhausted(self, caller: FrameType | None) -> bool:
        """Whether a generator over rows is the argument of one call that takes all it gives: `sum(f(r) for r in x)`."""
        if caller is None:
            return False
        at = instruction(caller)
        same = self._pulled_at in (None, at)
        self._pulled_at = at
        return same and _takes_a_generator(caller, at)


def _takes_a_generator(frame: FrameType, at: int) -> bool:
    code = frame.f_code
    if not hasattr(code, "co_positions"):  # Python 3.10 does not keep them
        return False
    first, last, start, end = next(itertools.islice(code.co_positions(), at // 2, None), (None,) * 4)
    if first is None or last is None or start is None or end is None:
        return False
    lines = [linecache.getline(code.co_filename, number).encode() for number in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        found = ast.parse(f"({b''.join(lines).decode()})", mode="eval").body
    except (SyntaxError, ValueError):
        return False
    return isinstance(found, ast.Call) and any(isinstance(argument, ast.GeneratorExp) for argument in found.args)
