"""Turns a plain Python loop into one Scan or Loop: a few rounds run, and what they have in common is the body.

    total, outs = torch.zeros(4), []
    for row in x:                        three rounds run, each on a row of its own
        total = total * 0.5 + row        total: result of the round before; in the first round, the zeros
        outs.append(total.tanh())        outs: one tensor from every round, made at the same place
    return torch.stack(outs), total      -> one Scan: its stacked output, its last state

The loop becomes a Scan (rows) or a Loop (`while`) where all of this is true; else it is refused, and `onnxpatch.scan`,
`each` and `while_loop` are proposed. By induction the graph is then right for any number of rounds from one on:
- the rounds make the same torch calls, call by call, on tensors with the same role in each: from outside the loop, the
  round's own row, a result of this round, or a result of the round before;
- each round starts from the same Python state (`round_state.py`), so that the next one would do the same again;
- the code takes every row (`rows.py`): `zip` with a shorter list would end the loop early;
- inside it, `len()` and slices are not taken of a list that grows; after it, they are of all rows (`rows.py`);
- no bool is decided inside but `if i == 0` of the round's number, what is carried keeps its dtype and, in a Scan, its
  shape, and updates in place are of tensors made in this forward (`answers.py`);
- with four rounds in place of three, the code after the loop does the same.
The first round may differ from the others, as where a state is None before it: then it stands before the loop.
A loop inside a round is one call of that round: its final state, and what all its rounds made at one place.
A loop of no rounds leaves what was there before it. State outside the model's code and objects (files, clocks, Python's
random numbers) is not seen. After the loop, a tensor of the last round stands for the final state, and a list with one
tensor of every round for their stack (`recorded_loop.py`).
"""

from __future__ import annotations

import ast
import functools
import inspect
import operator
import sys
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

import torch

from onnxpatch._torch.function_modes import tracing_paused
from onnxpatch.control_flow.loops.recorded_loop import ROW, Place, RecordedLoop
from onnxpatch.control_flow.loops.round_state import RoundStates
from onnxpatch.control_flow.pytrees import format_shape, tensors
from onnxpatch.control_flow.recording import Recording
from onnxpatch.control_flow.tape import TorchCall
from onnxpatch.errors import BranchError
from onnxpatch.messages.user_code import is_user_frame

_COMMUTE = (torch.Tensor.add, torch.Tensor.mul, torch.Tensor.__add__, torch.Tensor.__radd__, torch.Tensor.__mul__)
_ORDERS = ("eq", "ne", "lt", "le", "gt", "ge")
_OTHER_NUMBER = "a Python number differs between its rounds"
_OTHER_ROLE = "a round uses something other than its row and the results of the round before"


class Loop(RecordedLoop):
    """One loop in the user's code, while its first rounds run and are compared."""

    def __init__(self, capture: Recording, rows: torch.Tensor | None, first: int | None = None) -> None:
        super().__init__(capture, rows)
        self._first = first
        self.grown: set[str] = set()  # the lists that grow, as `round_state.roots` names them
        self._round_start: int | None = None
        self._initial_numbers: dict[Place, float] = {}  # Python numbers that were there before the loop, as `total = 0`
        self._states = RoundStates(self.refusal)

    # ---- while its first rounds run

    def begin(self, row: torch.Tensor | None = None) -> None:
        """Start recording a round."""
        if self._states.last is None:
            self._check_state(sys._getframe(1))
        if row is not None:
            self.places[id(row)] = len(self.rows_taken), ROW
            self.rows_taken.append(row)
        self.inner.append([])
        self._round_start = len(self.capture.explorers[-1].recorder.calls)

    def end(self) -> None:
        """Finish recording a round; does nothing before the first one."""
        if self._round_start is None:
            return
        number, calls = len(self.rounds), self.capture.explorers[-1].recorder.calls[self._round_start :]
        self._round_start = None
        self.rounds.append(calls)
        for at, call in enumerate(calls):
            for which, tensor in enumerate(tensors(call.result)):
                # A call may return its own argument (`x.to(x.dtype)`), which keeps the place where it was made.
                self.places.setdefault(id(tensor), (number, (at, which)))
        self.places |= {made: self.places[id(final)] for made, final in self._inside.items() if final is not None}
        self._check_state(sys._getframe(1))

    def _check_state(self, frame: FrameType) -> None:
        """Refuse unless the next round starts from the same Python state as this one did."""
        with self.capture.pause():
            model = self.capture.explorers[0].module
            grown = self._states.follow(frame, model, len(self.rounds), lambda tensor: self.places.get(id(tensor)))
        self.grown.update(grown)
        self._refuse_slices(frame, inside=True)

    def _refuse_slices(self, frame: FrameType, inside: bool) -> None:
        if (name := sliced_list(frame, self.grown, inside)) is not None:
            raise self.refusal(f"a slice takes a part of {name}, a list that grows with every round")

    def in_round(self, asked: TorchCall | None) -> bool | None:
        """The answer to `i == 0`, or `i > 0`, of the round's own number, which is the same from the second round on.

        None for other questions. asked: the call that compares.
        """
        if self._first is None or asked is None or len(asked.args) != 2 or asked.args[0] is not self.rows_taken[-1]:
            return None
        name, other = str(getattr(asked.function, "__name__", "")).strip("_"), asked.args[1]
        if name not in _ORDERS or type(other) is not int:
            return None
        later = other - self._first - (name in ("ge", "lt"))
        return bool(getattr(operator, name)(self._first + len(self.rounds), other)) if later <= 0 else None

    # ---- after the last round

    def finish(self) -> None:
        """Compare the rounds. Raises BranchError where they are not one body repeated, nor are all but the first."""
        self._states.last = None
        self._refuse_slices(sys._getframe(1), inside=False)
        earlier = self.capture.refused
        try:
            self._compare_rounds()
        except BranchError as refusal:
            if self.rows is None:
                raise
            self._take_out_first()
            try:
                self._compare_rounds()
            except BranchError:
                raise refusal from None
            self.capture.refused = earlier
        self.done = True

    def _take_out_first(self) -> None:
        """Leave the first round before the loop, for `h = f(row) if h is None else g(row, h)`."""
        self.rows = self.capture.execute(torch.Tensor.__getitem__, (self.rows, slice(1, None)))
        del self.rounds[0], self.rows_taken[0], self.inner[0]
        self.places = {name: (number - 1, place) for name, (number, place) in self.places.items() if number}
        self.carried.clear()
        self._initial_numbers.clear()

    def _compare_rounds(self) -> None:
        if len({len(calls) for calls in self.rounds}) > 1:
            raise self.refusal("its rounds differ")
        for at in range(len(self.rounds[0])):
            self._compare_calls([calls[at] for calls in self.rounds])
        if self.predicates:
            self._check_role(self.predicates[1:], carry=False)  # the first is asked of what was there before
        self._check_carried()

    def _compare_calls(self, calls: list[TorchCall]) -> None:
        """Compare the same call of every round."""
        if any(call.function != calls[0].function for call in calls) or any(call.mutates for call in calls):
            raise self.refusal("its rounds differ, or update in place what was made outside this forward")
        args = [call.args for call in calls]
        if calls[0].function in _COMMUTE and _is_number(args[0][-1]) and not _is_number(args[1][-1]):
            args[0] = args[0][::-1]  # `total = 0` before `total + row`: Python asks the tensor for `row + 0`
        self._compare([(arguments, call.kwargs) for arguments, call in zip(args, calls, strict=True)])

    def _compare(self, values: Sequence[object]) -> None:
        """Compare one argument, or a part of it, of every round."""
        first = values[0]
        if isinstance(first, int | float) and all(isinstance(value, torch.Tensor) for value in values[1:]):
            self._carry_number(first, tensors(values[1:]))
        elif isinstance(first, torch.Tensor):
            self._check_role(values)
        elif not all(type(value) is type(first) for value in values):
            raise self.refusal(_OTHER_NUMBER)
        elif (parts := _parts(first)) is not None:
            self._compare_parts(parts.keys(), [_parts(value) or {} for value in values])
        elif not all(_equal(value, first) for value in values) and not self._are_of_one_role(values):
            raise self.refusal(_OTHER_NUMBER)

    def _are_of_one_role(self, numbers: Sequence[object]) -> bool:
        """Whether numbers of the graph are computed in the same way of what their own rounds made: `n + 1`."""
        made: list[list[Any]] = [[call.result for call in calls] for calls in self.rounds]
        found = set()
        for number, results in zip(numbers, made, strict=True):
            if not isinstance(number, torch.SymInt):
                return False
            pairs = ((a, b) for a, b in zip(results, made[0], strict=True) if isinstance(a, torch.SymInt))
            found.add(number.node.expr.xreplace({own.node.expr: of_first.node.expr for own, of_first in pairs}))
        return len(found) == 1

    def _compare_parts(self, keys: Collection[object], values: Sequence[Mapping[object, object]]) -> None:
        if any(value.keys() != set(keys) for value in values):
            raise self.refusal(_OTHER_NUMBER)
        for key in keys:
            self._compare([value[key] for value in values])

    def _check_role(self, found: Sequence[object], carry: bool = True) -> None:
        """Refuse unless a tensor has the same role in every round.

        The roles: the same tensor from outside, the round's own row or result, or (if `carry`) the result of the round
        before.
        """
        if not all(isinstance(value, torch.Tensor) for value in found):
            raise self.refusal("its rounds differ")
        values = tensors(found)
        places = [self.places.get(id(tensor)) for tensor in values]
        known = [place for place in places if place is not None]
        if not known:
            same = all(tensor is values[0] for tensor in values)
        elif [number for number, _ in known] == list(range(len(values))):
            same = len({place for _, place in known}) == 1
        else:
            same = carry and places[0] is None and self._is_carried(values[0], places[1:])
        if not same:
            raise self.refusal(_OTHER_ROLE)

    def _carry_number(self, number: float, later: list[torch.Tensor]) -> None:
        """Carry what is a Python number in the first round and a tensor in later ones: `total = 0` before the loop."""
        place = self.places.get(id(later[0]))
        if place is None or self.rows is None:
            raise self.refusal("its rounds differ")
        if place[1] not in self.carried:
            self._initial_numbers[place[1]] = number
            self.carried[place[1]] = self.capture.execute(torch.full_like, (later[0], number))
        places = [self.places.get(id(tensor)) for tensor in later]
        if self._initial_numbers.get(place[1]) != number or not self._is_carried(self.carried[place[1]], places):
            raise self.refusal(_OTHER_ROLE)

    def _is_carried(self, initial: torch.Tensor, places: list[tuple[int, Place] | None]) -> bool:
        """Whether every later round uses the same result of the round before. places: from the second round on."""
        known = [place for place in places if place is not None]
        if len(known) != len(places) or any(place[0] != number for number, place in enumerate(known)):
            return False
        if len({place[1] for place in known}) != 1:
            return False
        return self.carried.setdefault(known[0][1], initial) is initial

    def _check_carried(self) -> None:
        """Refuse what changes its dtype from round to round or, under dynamo, its shape.

        Dynamo writes a Scan, whose state has one shape; the Loop of a trace may carry a tensor that grows.
        """
        with self.capture.pause(), tracing_paused():
            for place, initial in self.carried.items():
                states = [initial, *(self.result_at(number, place) for number in range(len(self.rounds)))]
                shapes = {format_shape(state) for state in states} if self.capture.exporter == "dynamo" else ()
                if len(shapes) > 1 or len({state.dtype for state in states}) > 1:
                    raise self.refusal("what is carried from one round to the next changes its shape or dtype")


def _parts(value: object) -> Mapping[object, object] | None:
    """The parts of a container or slice by key; None for other values."""
    if isinstance(value, tuple | list):
        return dict(enumerate(value))
    if isinstance(value, slice):
        return {"start": value.start, "stop": value.stop, "step": value.step}
    return value if isinstance(value, dict) else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _equal(a: object, b: object) -> bool:
    if isinstance(a, torch.SymInt | torch.SymFloat | torch.SymBool) and isinstance(b, type(a)):
        return bool(a.node.expr == b.node.expr)
    return a is b or bool(a == b)


def sliced_list(frame: FrameType | None, paths: Iterable[str], inside: bool = False) -> str | None:
    """The name of a list, out of `paths`, that a function on the stack slices; None where none does.

    frame: the innermost frame. paths: names as Python writes them, such as "outs" or "model.cache". inside: only in the
    loops that run now.
    """
    # Without the depth on the stack or the file, which the source does not have.
    names = {path.rpartition(":")[2] for path in paths}
    while frame is not None and names:
        if is_user_frame(frame):
            found = names & _sliced_names(frame.f_code, frame.f_lineno if inside else None)
            # The first by name, not any of a set: the message is the same in every process.
            if found:
                return min(found)
        frame = frame.f_back
    return None


@functools.lru_cache(maxsize=1024)
def _sliced_names(code: CodeType, line: int | None) -> frozenset[str]:
    """The expressions that a function takes bounded slices of: `outs` of `outs[-5:]`. line: only in its loops there."""
    try:
        tree: ast.AST = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError):  # typed in or generated: there is no source to read
        return frozenset()
    within = [tree]
    if line is not None:
        at = line - code.co_firstlineno + 1
        loops = (node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While))
        within = [node for node in loops if node.lineno <= at <= (node.end_lineno or at)]
    parts = (node for part in within for node in ast.walk(part) if isinstance(node, ast.Subscript))
    return frozenset(ast.unparse(part.value) for part in parts if _bounded(part.slice))


def _bounded(index: ast.expr) -> bool:
    return isinstance(index, ast.Slice) and (index.lower is not None or index.upper is not None)
