"""Iterates over the rows of a tensor, or the numbers of a range, whose number depends on the input.

The loop gets three rows (each is `rows[0]` in the graph), and what it does with them is recorded. That stands for all
rows only if the code takes them all:

    for row in x: ...              takes all       zip(x, [1, 2])       refused: may stop before the last row,
    [f(row) for row in x]          takes all       map(f, x)              which three rounds do not show
    list(x), sum(f(r) for r in x)  takes all       itertools.islice(x, 5)

Which of these runs is read off the byte code of the user's line: a `for` over rows has a GET_ITER there, `list(x)` is
the same one call for every row.
"""

from __future__ import annotations

import ast
import dis
import inspect
import itertools
import linecache
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import torch

from onnxpatch.control_flow.capture import Capture, as_number
from onnxpatch.control_flow.loops.inference import Loop
from onnxpatch.decisions.functions_run import instruction
from onnxpatch.messages.user_code import user_frame

_STOPS_EARLY = "zip, map or another iterator takes its rows, and may stop before the last"


class Rows:
    """What `for row in x` iterates over. rows: [n, ...]. counts: they are the numbers of a range, ints in eager.

    start: what the numbers of `for i, row in enumerate(x, start)` begin at; None without numbers. first: the first
    number of a range that goes up by 1, where it is known. beside: of `zip`, the tensors whose rows come together; then
    `rows` are their numbers. cut: (tensor, size, axis) of the pieces of a split, which begin at `rows`.
    """

    def __init__(self, capture: Capture, rows: torch.Tensor, counts: bool = False, start: int | None = None,
                 first: int | None = None, beside: Sequence[torch.Tensor] = (),
                 cut: tuple[torch.Tensor, int, int] | None = None) -> None:  # fmt: skip
        self._capture, self._rows, self._counts, self._start, self._first = capture, rows, counts, start, first
        self._beside, self._cut = beside, cut

    def __iter__(self) -> Iterator[object]:
        if self._beside:
            places = _few_rows(self._capture, self._rows, True, _Taker(), 0)
            return (tuple(one[place] for one in self._beside) for place in places)
        if self._cut is not None:
            return self._pieces(_few_rows(self._capture, self._rows, True, _Taker(), 0), *self._cut)
        if self._start is None:
            return _few_rows(self._capture, self._rows, self._counts, _Taker(), self._first)
        numbers = self._capture.execute(torch.arange, (self._rows.shape[0],), {"dtype": torch.int64})
        return self._numbered(_few_rows(self._capture, numbers, True, _Taker(), 0), self._start)

    def _pieces(
        self, starts: Iterator[torch.Tensor], tensor: torch.Tensor, size: int, axis: int
    ) -> Iterator[torch.Tensor]:
        for place in starts:
            # As a number, so that the last piece may be shorter.
            start: Any = as_number(self._capture, place)
            yield tensor[(*[slice(None)] * axis, slice(start, start + size))]

    def _numbered(self, numbers: Iterator[torch.Tensor], start: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for number in numbers:
            index = number + start if start else number
            # In eager it is an int: as a key or as text it is refused.
            self._capture.counters[id(index)] = start
            yield index, self._rows[number]

    def __reversed__(self) -> Rows:
        return Rows(self._capture, self._capture.execute(torch.flip, (self._rows, (0,))), self._counts)


def _few_rows(
    capture: Capture, rows: torch.Tensor, counts: bool, taker: _Taker, first: int | None
) -> Iterator[torch.Tensor]:
    """As many rows as are needed to see what the loop does; the loop is compared when they are used up."""
    explorer = capture.explorers[-1]
    loop = Loop(capture, rows, first)
    explorer.path.open(loop)
    for _ in range(explorer.rounds):
        if not taker.takes_all():
            raise loop.refusal(_STOPS_EARLY)
        # The first row each time, since the example may have no other.
        row = capture.execute(torch.select, (rows, 0, 0))
        if counts:
            capture.counters[id(row)] = first or 0
        loop.begin(row)
        yield row
        loop.end()
    explorer.path.close(loop)


class _Taker:
    """The line of the user's code that iterates over rows."""

    def __init__(self) -> None:
        frame = user_frame(sys._getframe(1))
        self._frame, self._at = frame, None if frame is None else instruction(frame)
        self._pulled_at: int | None = None

    def takes_all(self) -> bool:
        """Whether the code that asks for the next row is sure to ask for all of them."""
        frame = user_frame(sys._getframe(1))
        if frame is None or self._frame is None or self._at is None:
            return False
        if dis.opname[self._frame.f_code.co_code[self._at]] != "GET_ITER":
            return frame is self._frame and instruction(frame) == self._at  # one call, such as list(x), takes them
        return not frame.f_code.co_flags & inspect.CO_GENERATOR or self._exhausted(user_frame(frame.f_back))

    def _exhausted(self, caller: FrameType | None) -> bool:
        """Whether one call uses a generator over rows up, as `sum(f(r) for r in x)` does."""
        if caller is None:
            return False
        at = instruction(caller)
        same_call = self._pulled_at in (None, at)
        self._pulled_at = at
        return same_call and _takes_a_generator(caller, at)


def _takes_a_generator(frame: FrameType, at: int) -> bool:
    """Whether the expression at an instruction is a call with a generator expression as an argument."""
    code = frame.f_code
    if not hasattr(code, "co_positions"):  # Python 3.10 does not keep them
        return False
    first, last, start, end = next(itertools.islice(code.co_positions(), at // 2, None), (None,) * 4)
    if first is None or last is None or start is None or end is None:
        return False
    # Columns count bytes, not characters.
    lines = [linecache.getline(code.co_filename, number).encode() for number in range(first, last + 1)]
    # The end before the start, since both may be in one line.
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        expression = ast.parse(f"({b''.join(lines).decode()})", mode="eval").body
    except (SyntaxError, ValueError):
        return False
    return isinstance(expression, ast.Call) and any(isinstance(arg, ast.GeneratorExp) for arg in expression.args)
