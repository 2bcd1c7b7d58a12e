"""Plain loops that run as often as the input says: a few rounds are run, and what they have in common becomes one loop.

    total, outs = torch.zeros(4), []
    for row in x:                        three rounds are run, each on a stand-in for its row
        total = total * 0.5 + row        total: what the round before made; before the first round, the zeros
        outs.append(total.tanh())        outs: one tensor of every round, made at the same place
    return torch.stack(outs), total      -> one Scan: its stacked output, its last state

It becomes a Scan (rows) or a Loop (`while`) where all of this holds; else it is refused, and `onnxpatch.scan`, `each`
and `while_loop` are proposed. By induction it is then right for any number of rounds from one on:
- the rounds make the same torch calls, call by call, on tensors that play the same part in each: from outside, the
  round's own row, made by this round, or made by the round before;
- each round starts from the same Python state (`round_state.py`), so that the next one would do the same again;
- the code takes every row (`rows.py`): `zip` with a shorter list would end the loop early;
- a list that grows is not asked for its length, nor for a part of it (`growing_lists.py`);
- no bool is decided inside, nothing is updated in place, what is carried keeps its dtype and shape;
- with four rounds in place of three, the code after the loop does the same.
A loop of no rounds leaves what stood before it. What nobody sees: state outside the model's code and objects (files,
clocks, Python's random numbers). After the loop a tensor of the last round stands for the final state, and a list with
one tensor of every round for their stack (`results.py`).
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from onnxpatch._torch.trace_state import tracing_paused
from onnxpatch.control_flow.loops.growing_lists import sliced
from onnxpatch.control_flow.loops.results import ROW, LoopResults, Place
from onnxpatch.control_flow.loops.round_state import Changed, RoundState, check_same
from onnxpatch.control_flow.source_sites import Site, here
from onnxpatch.control_flow.tape import Entry, tensors

if TYPE_CHECKING:
    from onnxpatch.control_flow.capture import Capture


_COMMUTE = (torch.Tensor.add, torch.Tensor.mul, torch.Tensor.__add__, torch.Tensor.__radd__, torch.Tensor.__mul__)


class Loop:
    """One loop of the user's, while it runs and after.

    rows: what it runs over, one a round; None for a `while`, whose `answers` are the predicates, one more than rounds.
    """

    def __init__(self, capture: Capture, rows: torch.Tensor | None) -> None:
        self.capture, self.rows, self.site = capture, rows, here()
        self.given: list[torch.Tensor] = []
        self.rounds: list[list[Entry]] = []
        self.answers: list[torch.Tensor] = []
        self.start: int | None = None
        self.done = False
        self.results = LoopResults(self)
        self.places: dict[int, tuple[int, Place]] = {}  # by id of a tensor: the round that made it, and where in it
        self.carried: dict[Place, torch.Tensor] = {}
        self._first: dict[Place, float] = {}  # the Python number that stood before the loop, by the place carried
        self._state: RoundState | None = None
        self._grown: dict[str, Any] | None = None

    # ---- while it runs

    def begin(self, row: torch.Tensor | None = None) -> None:
        """A round begins."""
        if self._state is None:
            self._check_state(sys._getframe(1))
        if row is not None:
            self.places[id(row)] = len(self.given), ROW
            self.given.append(row)
        self.start = len(self.capture.frames[-1].tape)

    def end(self) -> None:
        """A round is over."""
        if self.start is None:
            return
        number, entries, self.start = len(self.rounds), self.capture.frames[-1].tape[self.start :], None
        self.rounds.append(entries)
        for at, entry in enumerate(entries):
            for which, tensor in enumerate(tensors(entry.result)):
                self.places.setdefault(id(tensor), (number, (at, which)))
        self._check_state(sys._getframe(1))

    def _check_state(self, frame: FrameType) -> None:
        """The next round must start from the Python state from which this one started."""
        before, rounds = self._state, len(self.rounds)
        with self.capture.pause():
            model = self.capture.frames[0].module
            self._state = RoundState(frame, model, rounds, lambda tensor: self.places.get(id(tensor)))
        if before is None:
            return
        try:
            grown = check_same(before, self._state)
            if self._grown is not None and self._grown != grown:
                raise Changed(next(name for name in self._grown | grown if self._grown.get(name) != grown.get(name)))
        except Changed as changed:
            kind = "the Python number " if changed.number else ""
            raise self.refusal(f"{kind}{changed.path} changes from one round to the next") from None
        self._grown = grown if before.rounds > 1 else None
        if (name := sliced(frame, grown)) is not None:
            raise self.refusal(f"a slice takes a part of {name}, a list that grows with every round")

    def rounds_in(self, values: Any) -> int:
        """From how many rounds a container holds tensors."""
        return len({self.places[id(tensor)][0] for tensor in tensors(values) if id(tensor) in self.places})

    # ---- when it has ended

    def finish(self) -> None:
        """The last round is over: what all rounds have in common."""
        self._state = None
        if len({len(entries) for entries in self.rounds}) > 1:
            raise self.refusal("its rounds differ")
        for at in range(len(self.rounds[0])):
            self._compare([entries[at] for entries in self.rounds])
        if self.answers:
            self._pair(list(self.answers[1:]), carry=False)
        self._check_carried()
        self.done = True

    def _compare(self, entries: list[Entry]) -> None:
        if any(entry.function != entries[0].function for entry in entries) or any(entry.mutates for entry in entries):
            raise self.refusal("its rounds differ, or update something in place")
        args = [entry.args for entry in entries]
        if entries[0].function in _COMMUTE and _is_number(args[0][-1]) and not _is_number(args[1][-1]):
            args[0] = args[0][::-1]  # `total = 0` before `total + row`: Python asks the tensor for `row + 0`
        self._alike([(given, entry.kwargs) for given, entry in zip(args, entries, strict=True)])

    def _alike(self, values: list[Any]) -> None:
        first = values[0]
        if isinstance(first, int | float) and all(isinstance(value, torch.Tensor) for value in values[1:]):
            self._start_with(first, values[1:])
        elif isinstance(first, torch.Tensor):
            self._pair(values)
        elif isinstance(first, tuple | list) and all(type(v) is type(first) and len(v) == len(first) for v in values):
            for inner in zip(*values, strict=True):
                self._alike(list(inner))
        elif isinstance(first, dict) and all(type(v) is type(first) and v.keys() == first.keys() for v in values):
            for key in first:
                self._alike([value[key] for value in values])
        elif isinstance(first, slice):
            self._alike([(value.start, value.stop, value.step) for value in values])
        elif any(type(value) is not type(first) or not _equal(value, first) for value in values):
            raise self.refusal("a Python number differs between its rounds")

    def _pair(self, found: list[Any], carry: bool = True) -> None:
        """One tensor of every round: the same one, its own row, its own result, or the result of the round before."""
        if not all(isinstance(value, torch.Tensor) for value in found):
            raise self.refusal("its rounds differ")
        places = [self.places.get(id(tensor)) for tensor in found]
        if all(place is None for place in places):
            if all(tensor is found[0] for tensor in found):
                return
        elif all(place is not None and place[0] == number for number, place in enumerate(places)):
            if len({place[1] for place in places if place is not None}) == 1:
                return
        elif carry and places[0] is None and self._from_before(found[0], places[1:]):
            return
        raise self.refusal("a round uses something other than its row and what the round before left")

    def _start_with(self, number: float, found: list[Any]) -> None:
        """`total = 0` before the loop: what the first round uses is a Python number, later ones a tensor."""
        place = self.places.get(id(found[0]))
        if place is None or self.rows is None:
            raise self.refusal("its rounds differ")
        if place[1] not in self.carried:
            self._first[place[1]] = number
            self.carried[place[1]] = self.capture.execute(torch.full_like, (found[0], number), {})
        places = [self.places.get(id(tensor)) for tensor in found]
        if self._first.get(place[1]) != number or not self._from_before(self.carried[place[1]], places):
            raise self.refusal("a round uses something other than its row and what the round before left")

    def _from_before(self, init: torch.Tensor, places: list[Any]) -> bool:
        if any(place is None or place[0] != number for number, place in enumerate(places)):
            return False
        if len({place[1] for place in places}) != 1:
            return False
        return self.carried.setdefault(places[0][1], init) is init

    def _check_carried(self) -> None:
        """What is carried from round to round keeps its dtype, and under dynamo, which writes a Scan, its shape.

        The Loop of a trace may carry a tensor that grows.
        """
        with self.capture.pause(), tracing_paused():
            for place, init in self.carried.items():
                states = [init, *(self.made(number, place) for number in range(len(self.rounds)))]
                sizes = {_size_texts(state) for state in states} if self.capture.exporter == "dynamo" else ()
                if len(sizes) > 1 or len({state.dtype for state in states}) > 1:
                    raise self.refusal("what is carried from one round to the next changes its shape or dtype")

    def made(self, number: int, place: Place) -> torch.Tensor:
        """The tensor that a round made at a place."""
        return self.given[number] if place == ROW else tensors(self.rounds[number][place[0]].result)[place[1]]

    def refusal(self, found: str) -> Exception:
        return refused(self.capture, self.site, found)


def refused(capture: Capture, site: Site, found: str) -> Exception:
    """The error for a loop that cannot be read off its rounds."""
    return capture.refusal(
        site,
        f"a loop that runs as often as the input says: {found}",
        remedy="put its body into a function marked @onnxpatch.scan (rows that depend on the ones before), "
        "@onnxpatch.each (rows that do not) or @onnxpatch.while_loop, or write it for the whole tensor",
    )


def _size_texts(tensor: torch.Tensor) -> tuple[str, ...]:
    return tuple(str(size.node.expr if isinstance(size, torch.SymInt) else size) for size in tensor.shape)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.SymInt | torch.SymFloat | torch.SymBool):
        return bool(a.node.expr == b.node.expr)
    return a is b or bool(a == b)
