"""Iterates over the rows of a tensor, or the numbers of a range, whose number depends on the input.

The loop gets three rows (each is `rows[0]` in the graph), and what it does with them is recorded. That stands for all
rows only if the code takes them all:

    for row in x: ...              takes all       zip(x, [1, 2])       refused: may stop before the last row,
    [f(row) for row in x]          takes all       map(f, x)              which three rounds do not show
    list(x), sum(f(r) for r in x)  takes all       itertools.islice(x, 5)

Which of these runs is read off the byte code of the user's line: a `for` over rows has a GET_ITER there, `list(x)` is
the same one call for every row.

A list that the loop has filled has three entries then, and as many as the input has rows in eager. So a `FilledList`
takes the place of the local variable's list when the loop ends:

    for out in outs: ...           a loop of its own, over all rows of torch.stack(outs)
    outs[i], outs[1:], outs[-1]    rows of torch.stack(outs); the last one is the loop's final state
    len(outs)                      x.shape[0] (`python_calls.py`)

Of a list that something else refers to as well, such as a module's attribute, one of two would miss what the code does
to the other: it stays.
"""

from __future__ import annotations

import ast
import ctypes
import dis
import inspect
import linecache
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, cast

import torch

from onnxpatch.control_flow.capture import Capture, as_number, current_capture
from onnxpatch.control_flow.indexing import indexed
from onnxpatch.control_flow.loops.inference import Loop
from onnxpatch.control_flow.pytrees import Unbound, tensors
from onnxpatch.decisions.functions_run import instruction, position
from onnxpatch.messages.user_code import is_user_frame, user_frame

# A local variable, the state after the last round, the name `value`, the argument of getrefcount; before 3.13, also the
# copy that f_locals is.
_REFERENCES = 4 if sys.version_info >= (3, 13) else 5
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
        explorer.path.end_round(loop)
    loop.grown -= _hold_filled(sys._getframe(1), loop.grown)
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
    place = position(frame.f_code, at)
    if len(place) < 4:  # Python 3.10 keeps no columns
        return False
    first, start, last, end = place
    # Columns count bytes, not characters.
    lines = [linecache.getline(frame.f_code.co_filename, number).encode() for number in range(first, last + 1)]
    # The end before the start, since both may be in one line.
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        expression = ast.parse(f"({b''.join(lines).decode()})", mode="eval").body
    except (SyntaxError, ValueError):
        return False
    return isinstance(expression, ast.Call) and any(isinstance(arg, ast.GeneratorExp) for arg in expression.args)


def unbound(capture: Capture, whole: torch.Tensor) -> Unbound:
    """The rows of a tensor as a tuple of them."""

    def take(index: object) -> object:
        if index == slice(None, None, -1):
            return unbound(capture, capture.execute(torch.flip, (whole, (0,))))
        taken = indexed(capture, torch.Tensor.__getitem__, whole, index)
        return unbound(capture, cast(torch.Tensor, taken)) if isinstance(index, slice) else taken

    return Unbound.of(whole, take, Rows(capture, whole))


class FilledList(list[torch.Tensor]):
    """The list of a local variable, with the tensors of the rounds that were run."""

    def entries(self) -> list[torch.Tensor]:
        """Python's entries, those of the rounds that were run."""
        return super().__getitem__(slice(None))

    def whole(self) -> torch.Tensor | None:
        """[n, ...]: its rows as the file has them; None where what was done to it since leaves no rows."""
        capture = current_capture()
        return None if capture is None or not capture.explorers else rows_filled(capture, self)

    def __iter__(self) -> Iterator[Any]:
        capture, whole = current_capture(), self.whole()
        return super().__iter__() if capture is None or whole is None else iter(Rows(capture, whole))

    def __getitem__(self, index: Any) -> Any:
        capture = current_capture()
        if capture is None or index in (slice(None), slice(None, None, -1)) or self._is_same(capture, index):
            found = super().__getitem__(index)
            return FilledList(found) if isinstance(index, slice) else found
        whole = self.whole()
        return super().__getitem__(index) if whole is None else unbound(capture, whole)[index]

    def _is_same(self, capture: Capture, index: object) -> bool:
        """Whether Python's entry at an index is the one of any number of rounds.

        Counted from the start, it stands before the rounds' entries; from the end, behind them, or is the last one's.
        """
        if type(index) is not int or not -len(self) <= index < len(self):
            return False
        entries, at = self.entries(), index % len(self)
        rounds = [self._round_of(capture, one) for one in entries]
        beside = rounds[at + 1 :] if index < 0 else rounds[:at]
        return set(beside) <= {None} and (rounds[at] is None or (index < 0 and rounds[at] == -1))

    @staticmethod
    def _round_of(capture: Capture, entry: torch.Tensor) -> int | None:
        """Which round made an entry: 0 for the first, -1 for the last; None where none did."""
        loops = (loop for loop in capture.explorers[-1].path.loops if id(entry) in loop.places)
        found = next(((loop.places[id(entry)][0], len(loop.rounds)) for loop in loops), None)
        return None if found is None else -1 if found[0] == found[1] - 1 else found[0]


def rows_filled(capture: Capture, values: list[Any]) -> torch.Tensor | None:
    """[n, ...]: the tensor whose rows a list has that a loop has filled; None for another list."""
    entries = values.entries() if isinstance(values, FilledList) else values
    found = (loop.rows_of(entries) for loop in capture.explorers[-1].path.loops)
    return next((rows for rows in found if rows is not None), None)


def _hold_filled(frame: FrameType | None, paths: Iterable[str]) -> set[str]:
    """Put a `FilledList` in place of each local variable's list. Returns the paths of those that were replaced.

    frame: the innermost. paths: of the lists that grew with every round, as `round_state.roots` names them.
    """
    wanted, found, depth = set(paths), set(), 0
    while frame is not None and wanted:
        if is_user_frame(frame):
            for path in wanted:
                outer, _, name = path.rpartition(":")
                value = frame.f_locals.get(name) if (outer or "0") == str(depth) else None
                if type(value) is list and sys.getrefcount(value) <= _REFERENCES and len(tensors(value)) == len(value):
                    _set_local(frame, name, FilledList(value))
                    found.add(path)
            depth += 1
        frame = frame.f_back
    return found


def _set_local(frame: FrameType, name: str, value: object) -> None:
    frame.f_locals[name] = value
    if sys.version_info < (3, 13):  # where f_locals is a copy, which a debugger writes back so
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
