"""`Cause`: what broke a part: the kind of code, its line, an operator. It is found in a stack, in the source alone, or
by running eager. `likeliest` ranks the lines that may have become constants of a wrong graph.

A line is suspected because torch.jit.trace warned about it, because torch.export fixed a condition on it, or because
eager branches another way there than at the example. The line to blame changes at the probes where the graph is wrong,
and only there:

    probe            graph    line 12: `if h > 8`    line 20: `if h > 18`
    example h=16     right    True                   False
    h=20             wrong    True                   True     changed where the graph is wrong: line 20 is to blame
    h=4              right    False                  False    line 12 changed, and the graph is right: harmless
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from onnxpatch.decisions.ask import Site
from onnxpatch.diagnosis.lines import constructs as kinds
from onnxpatch.diagnosis.lines.constructs import Statement, code_at, construct_at, in_function, statement_at
from onnxpatch.diagnosis.lines.execution_trace import changed_statements, trace_execution
from onnxpatch.diagnosis.lines.exporter_lines import conditions_broken_at, own_place
from onnxpatch.diagnosis.parts.module_calls import Unit
from onnxpatch.diagnosis.trial import Subject, Trial
from onnxpatch.messages.user_code import is_user_file
from onnxpatch.verification.eager import Eager


@dataclass(frozen=True)
class Cause:
    """What broke a part.

    construct: one of the kinds in `constructs.py`. code: the source line. operator: `aten::name` or `onnx::Name`.
    """

    construct: str = kinds.UNKNOWN
    file: str = ""
    line: int = 0
    code: str = ""
    operator: str = ""

    @property
    def source(self) -> str:
        """file:line; "" where no line is known."""
        return f"{self.file}:{self.line}" if self.file else ""


def cause_at(places: Iterable[Site], kind: str, known: bool = False) -> Cause:
    """The cause at the first of the lines; without a line where there is none.

    kind: used where the source there tells no other. known: the kind is certain, the source is not looked at.
    """
    for place in places:
        seen = None if known else construct_at(place.file, place.line)
        return Cause(seen.kind if seen else kind, place.file, place.line, code_at(place.file, place.line))
    return Cause(kind)


def cause_in_source(unit: Unit, kind: str, sizes: bool | None = None) -> Cause:
    """The most telling construct in the source of the unit's own method; a cause of `kind` without a line for none.

    sizes: True to prefer constructs about sizes, False to prefer the others.
    """
    found = in_function(getattr(type(unit.module), unit.method, None))
    about = {kinds.BRANCH_SIZE, kinds.NUMBER_SIZE, kinds.LOOP_SIZE, kinds.LOOP_ROWS}
    if sizes is not None:
        found = sorted(found, key=lambda c: (c.kind in about) is not sizes)
    # A method of torch's own has no line that the user could change.
    if not found or not is_user_file(found[0].file):
        return Cause(kind)
    return Cause(found[0].kind, found[0].file, found[0].line, found[0].code)


def own_line(places: Sequence[Site], unit: Unit) -> list[Site]:
    """The unit's own line of a traceback, outermost first: its innermost frame; the innermost of all if it has none."""
    own = [place for place in places if place.module is unit.module]
    return (own or list(places))[-1:]


Line = tuple[str, int]  # (file, number)
_LAST = 1 << 30
_PROBES = 6  # right ones, and as many wrong ones, at which eager is traced
# Tracing every instruction makes eager many times slower.
_SECONDS = 20.0
# Less than of a line that changes where the graph is wrong, more than of one that mostly changes where it is right.
_UNTRACED_SCORE = 0.35  # of a line that cannot be compared
_NAMED_BONUS = 0.05  # for a line that the exporter itself named
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
class _Suspect:
    """One line that may have been fixed.

    named: the exporter named it. traced: `changes_at` is complete. changes_at: numbers of the probes at which eager
    runs differently here than at the example. branches: what was fixed is a branch, and not a number in the head of a
    loop. compares: what was fixed is a comparison inside an expression (max, any), which cannot be traced. order: how
    early eager runs the line.
    """

    cause: Cause
    statement: Statement
    named: bool = False
    traced: bool = False
    branches: bool = True
    compares: bool = False
    changes_at: set[int] = field(default_factory=set)
    order: int = _LAST

    def rank(self, wrong: set[int], right: set[int]) -> tuple[float, bool, int]:
        """The smallest is the likeliest. wrong, right: numbers of the probes with that verdict."""
        at_wrong, at_right = len(self.changes_at & wrong), len(self.changes_at & right)
        # The cosine between "changes" and "is wrong" over the probes: Ochiai's measure of fault localization.
        score = at_wrong / math.sqrt(len(wrong) * max(1, at_wrong + at_right))
        score = (score if self.traced else _UNTRACED_SCORE) + (_NAMED_BONUS if self.named else 0)
        # Rounded, so that equal scores are equal on every machine, and the order decides.
        return -round(score, 6), not self.decides, self.order

    @property
    def decides(self) -> bool:
        """Whether the line itself branches or makes a number; a line that only computes with it comes after."""
        return self.statement.branches or self.cause.construct in _NUMBERS


def likeliest(unit: Unit, subject: Subject, trial: Trial, other_sizes: bool) -> Cause | None:
    """The line to blame for a graph that is wrong at some probes; None where nothing points at one.

    other_sizes: the graph is wrong at sizes other than the example's.
    """
    # Without a graph there are no checks: it may be wrong at any probe but the example.
    bad = [i for i, check in enumerate(trial.checks) if not check.ok] or [*range(1, len(subject.probes))]
    good = [i for i, check in enumerate(trial.checks) if check.status == "right" and i]
    wrong, right = bad[:_PROBES], good[:_PROBES]
    suspects = [*_warned_lines(unit, trial, other_sizes), *_broken_conditions(unit, subject, trial)]
    suspects = _traced(unit, subject, suspects, wrong, right, other_sizes)
    found = [s for s in suspects if not _only_checks(s.cause) and (s.changes_at & set(wrong) or not s.traced)]
    return min(found, key=lambda suspect: suspect.rank(set(wrong), set(right))).cause if found else None


def _only_checks(cause: Cause) -> bool:
    # These stop a run or do nothing: what the graph computes is made elsewhere.
    return cause.code.startswith(("assert", "torch._check", "raise"))


# ------------------------------------------------------------------ what the exporter reports
def _warned_lines(unit: Unit, trial: Trial, other_sizes: bool) -> list[_Suspect]:
    """Lines that a trace warned about."""
    found: dict[Statement, _Suspect] = {}
    for stack, text in trial.warned:
        place = own_place(stack, unit)
        statement = statement_at(place.file, place.line) if place else None
        if place and statement and statement not in found:
            kind = next((kind for part, kind in _MESSAGES.items() if part in text), kinds.UNKNOWN)
            # torch.jit.trace does not tell them apart: under it sizes are tensors too.
            kind = kinds.BRANCH_SIZE if other_sizes and kind == kinds.BRANCH_TENSOR else kind
            is_bool = "Python boolean" in text
            found[statement] = _Suspect(
                cause_at([place], kind),
                statement,
                named=True,
                branches=is_bool,
                compares=is_bool and not statement.branches,
            )
    return list(found.values())


def _broken_conditions(unit: Unit, subject: Subject, trial: Trial) -> list[_Suspect]:
    """Lines at which torch.export fixed a condition on sizes that is false at some probe."""
    found: dict[Statement, _Suspect] = {}
    for place, probes in conditions_broken_at(unit, trial, subject):
        statement = statement_at(place.file, place.line) or Statement(place.file, place.line, place.line)
        suspect = found.setdefault(statement, _Suspect(cause_at([place], kinds.FIXED_SIZE), statement, named=True))
        if probes is not None:
            suspect.changes_at |= probes
            suspect.traced = True
    return list(found.values())


# ------------------------------------------------------------------ what eager does
def _traced(
    unit: Unit,
    subject: Subject,
    suspects: list[_Suspect],
    wrong: Sequence[int],
    right: Sequence[int],
    other_sizes: bool,
) -> list[_Suspect]:
    """The suspects with `changes_at` filled in, and the lines at which eager branches another way than at the example.

    Where a run is too long to trace, or time is up, the suspects stay as far as they were compared.
    """
    watched = [suspect.statement for suspect in suspects if not suspect.traced and not suspect.compares]
    eager = Eager(subject.model, subject.inputs, subject.flatten)
    example = trace_execution(unit, eager, subject.probes[0].values, watched)
    if example is None:
        return suspects
    start, kind = time.perf_counter(), kinds.BRANCH_SIZE if other_sizes else kinds.BRANCH_TENSOR
    by_statement = {suspect.statement: suspect for suspect in suspects}
    for index in (*wrong, *right):
        run = trace_execution(unit, eager, subject.probes[index].values, watched)
        if run is None or time.perf_counter() - start > _SECONDS:
            return suspects
        for statement in changed_statements(example, run):
            cause = cause_at([Site(statement.file, statement.start)], kind)
            suspect = by_statement.setdefault(statement, _Suspect(cause, statement))
            suspect.changes_at.add(index)
            suspect.traced = True
    return _with_order(list(by_statement.values()), example.first_run(), example.numbers)


def _with_order(suspects: list[_Suspect], first_run: Mapping[Line, int], numbers: Collection[Line]) -> list[_Suspect]:
    """Mark what was traced at every probe, and note how early each line runs."""
    for suspect in suspects:
        statement = suspect.statement
        # A branch that changed at no probe is taken the same way everywhere; so is a number that was kept.
        has_numbers = (statement.file, statement.start) in numbers
        suspect.traced = suspect.traced or (statement.branches and suspect.branches) or has_numbers
        lines = range(statement.start, statement.end + 1)
        suspect.order = min((first_run.get((statement.file, line), _LAST) for line in lines), default=_LAST)
    return suspects
