"""Lines that a graph may have frozen, held against every probe: what turns where the graph is wrong, and only there.

A line is suspected because the trace warned about it, because torch.export settled a condition on it, or because eager
takes another way at it. One that turns at a probe at which the graph is right does no harm.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from onnxpatch.diagnosis.lines import constructs as kinds
from onnxpatch.diagnosis.lines.cause import Cause, at
from onnxpatch.diagnosis.lines.execution_trace import ExecutionTrace, diverging_lines, other_numbers, trace_execution
from onnxpatch.diagnosis.lines.guard_lines import conditions_broken_at, own_place
from onnxpatch.diagnosis.lines.statements import Statement, statement_at
from onnxpatch.diagnosis.parts.module_calls import Unit
from onnxpatch.diagnosis.stack_lines import Place
from onnxpatch.diagnosis.trials.attempt import Subject, Trial
from onnxpatch.verification.eager import Eager

_LAST = 1 << 30
_FOLLOWED = 6  # probes of each verdict that eager is followed at
_SECONDS = 20.0
_UNKNOWN, _NAMED = 0.35, 0.05  # likeness of what cannot be followed; what being spoken of adds
_NUMBERS = (kinds.NUMBER_SIZE, kinds.NUMBER_TENSOR, kinds.LOOP_SIZE, kinds.LOOP_ROWS, kinds.LOOP_TENSOR)

_MESSAGES = {
    "Python boolean": kinds.BRANCH_TENSOR,
    "Iterating over": kinds.LOOP_ROWS,
    "Using len": kinds.NUMBER_SIZE,
    "Python integer": kinds.NUMBER_TENSOR,
    "Python float": kinds.NUMBER_TENSOR,
    "Python number": kinds.NUMBER_TENSOR,
    "Python index": kinds.NUMBER_TENSOR,
    "Python list": kinds.NUMBER_TENSOR,
    "NumPy": kinds.NUMBER_TENSOR,
    "registered as constants": kinds.BUILT,
}


@dataclass
class Suspect:
    """One line. named: the exporter itself named it; known: it is known at which probes it turns: `turned`.

    branches: what was frozen is which way to go; not so a number inside the head of a loop.
    compares: what was frozen is a comparison inside an expression (max, min, any), of which nothing can be followed.
    """

    cause: Cause
    statement: Statement
    named: bool = False
    known: bool = False
    branches: bool = True
    compares: bool = False
    turned: set[int] = field(default_factory=set)
    order: int = _LAST

    def rank(self, wrong: set[int], right: set[int]) -> tuple[float, bool, int]:
        """The least is the likeliest: it turns wherever the graph is wrong, and nowhere else."""
        turned = self.turned & wrong, self.turned & right
        likeness = len(turned[0]) / math.sqrt(len(wrong) * max(1, len(turned[0]) + len(turned[1])))
        likeness = (likeness if self.known else _UNKNOWN) + (_NAMED if self.named else 0)
        return -round(likeness, 6), not self.decides, self.order

    @property
    def decides(self) -> bool:
        """A branch or a number is a cause; what is computed with it comes after."""
        return self.statement.turns or self.cause.construct in _NUMBERS


def likeliest(unit: Unit, subject: Subject, trial: Trial, moved: bool) -> Cause | None:
    """The line to blame for a graph that is wrong at some probes; None where nothing points at one."""
    bad = [i for i, check in enumerate(trial.checks) if not check.ok] or [*range(1, len(subject.probes))]
    good = [i for i, check in enumerate(trial.checks) if check.status == "right" and i]
    wrong, right = bad[:_FOLLOWED], good[:_FOLLOWED]
    found = [*_warned_lines(unit, trial, moved), *_conditions(unit, subject, trial)]
    _follow(unit, subject, found, wrong, right, moved)
    found = [one for one in found if not _checks_only(one.cause) and (one.turned & set(wrong) or not one.known)]
    return min(found, key=lambda one: one.rank(set(wrong), set(right))).cause if found else None


def _checks_only(cause: Cause) -> bool:
    return cause.code.startswith(("assert", "torch._check", "raise"))


# ------------------------------------------------------------------ what the exporter says
def _warned_lines(unit: Unit, trial: Trial, moved: bool) -> list[Suspect]:
    """Lines that a trace warned about."""
    found: dict[Statement, Suspect] = {}
    for stack, text in trial.warned:
        place = own_place(stack, unit)
        statement = statement_at(place.file, place.line) if place else None
        if place and statement and statement not in found:
            kind = next((kind for part, kind in _MESSAGES.items() if part in text), kinds.UNKNOWN)
            kind = kinds.BRANCH_SIZE if moved and kind == kinds.BRANCH_TENSOR else kind
            asks = "Python boolean" in text
            found[statement] = Suspect(
                at([place], kind), statement, named=True, branches=asks, compares=asks and not statement.turns
            )
    return list(found.values())


def _conditions(unit: Unit, subject: Subject, trial: Trial) -> list[Suspect]:
    """Lines at which torch.export settled a condition on sizes that does not hold at every probe."""
    found: dict[Statement, Suspect] = {}
    for place, turned in conditions_broken_at(unit, trial, subject):
        statement = statement_at(place.file, place.line) or Statement(place.file, place.line, place.line)
        one = found.setdefault(statement, Suspect(at([place], kinds.FIXED_SIZE), statement, named=True))
        if turned is not None:
            one.turned |= turned
            one.known = True
    return list(found.values())


# ------------------------------------------------------------------ what eager does
def _follow(
    unit: Unit, subject: Subject, found: list[Suspect], wrong: Sequence[int], right: Sequence[int], moved: bool
) -> None:
    """Fill in at which probes each suspect turns, and add the lines at which eager's way parts from the example's."""
    watched = [one.statement for one in found if not one.known and not one.compares]
    eager = Eager(subject.model, subject.inputs, subject.flatten)
    example = trace_execution(unit, eager, subject.probes[0].values, watched)
    if example is None:
        return
    start = time.perf_counter()
    by_statement = {one.statement: one for one in found}
    for index in (*wrong, *right):
        way = trace_execution(unit, eager, subject.probes[index].values, watched)
        if way is None or time.perf_counter() - start > _SECONDS:
            return
        for statement in _turns(example, way):
            one = by_statement.setdefault(statement, Suspect(_parting(statement, moved), statement))
            one.turned.add(index)
            one.known = True
    for one in found:  # followed to the end: a branch that has not turned is taken the same way everywhere
        counted = (one.statement.file, one.statement.start) in example.numbers
        one.known = one.known or (one.statement.turns and one.branches) or counted
    found[:] = by_statement.values()
    runs = {(step.file, step.line): at for at, step in reversed(list(enumerate(example.steps.values())))}
    for one in found:
        lines = range(one.statement.start, one.statement.end + 1)
        one.order = min((runs.get((one.statement.file, line), _LAST) for line in lines), default=_LAST)


def _turns(example: ExecutionTrace, way: ExecutionTrace) -> Iterator[Statement]:
    numbers = other_numbers(example, way)
    places = [*diverging_lines(example, way), *(Place(file, line) for file, line in sorted(numbers))]
    for place in places:
        statement = statement_at(place.file, place.line)
        if statement is not None:
            yield statement


def _parting(statement: Statement, moved: bool) -> Cause:
    place = Place(statement.file, statement.start)
    return at([place], kinds.BRANCH_SIZE if moved else kinds.BRANCH_TENSOR)
