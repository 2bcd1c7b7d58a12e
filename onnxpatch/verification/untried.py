"""What no probe ran: the sides of the model's own conditions that no compared input took, though one could.

    if w.abs().max() > 1.5: ...       no probe made it so: the graph may have frozen the other side
    if self.causal: ...               not listed: no input turns it
    if n > 512: raise ...             nor this: where the model refuses there is nothing to be wrong

A condition inside a side that never ran is not listed either, since the one before it is.
"""

from __future__ import annotations

import ast
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from onnxpatch.decisions.choice_outcomes import Choice, not_chosen, place
from onnxpatch.decisions.code_run import CodeRun
from onnxpatch.decisions.conditionals import Source, is_idle, missing_sides, sides_of_jumps
from onnxpatch.decisions.dependence import Dependence
from onnxpatch.decisions.functions_run import Function
from onnxpatch.decisions.sides_taken import SidesTaken, Taken
from onnxpatch.results.checks import Untried
from onnxpatch.verification.probe import Probe

_INVERSE: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Gt: ast.LtE, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_Way = TypeVar("_Way", ast.match_case, ast.ExceptHandler, ast.For)
_LONGEST = 72  # characters of a condition


@dataclass(frozen=True)
class _Side:
    """A side that did not run.

    on: the expressions of which one has to turn. order: its place. within: the condition.
    """

    function: Function
    on: tuple[ast.expr, ...]
    said: str
    question: str
    order: tuple[str, int, int]
    within: ast.AST | None = None


def _side(
    function: Function, on: tuple[ast.expr, ...], at: Any, said: str, question: ast.expr, within: ast.AST | None = None
) -> _Side:
    """at: the node at whose place it stands."""
    order = (function.code.co_filename, at.lineno, at.col_offset)
    return _Side(function, on, said, _text(question), order, within)


@dataclass
class _Ran:
    """What the probes ran: the lines of each function, by its number; of each test its answers, the kinds of what was
    tested, and the first probe that came to it. names: the tests that are a name, with their functions."""

    lines: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    answers: defaultdict[ast.expr, set[bool]] = field(default_factory=lambda: defaultdict(set))
    tested: defaultdict[ast.expr, set[str]] = field(default_factory=lambda: defaultdict(set))
    nearest: dict[ast.expr, str] = field(default_factory=dict)
    names: list[tuple[Function, ast.expr]] = field(default_factory=list)


def untried(sides: SidesTaken, probes: Sequence[Probe]) -> list[Untried] | None:
    """The sides that none of the probes took and that an input could take, in the order of the files.

    None where they are not known: nothing was recorded, or the model's code is nested too deeply to be read.
    """
    try:
        return _untried(sides, probes) if sides.able else None
    except RecursionError:  # a generated sum of a thousand terms
        return None


def _untried(sides: SidesTaken, probes: Sequence[Probe]) -> list[Untried]:
    taken = [(probe.label, probe.taken) for probe in probes if probe.taken is not None]
    ran, code = _read(sides, taken)
    known = Dependence(code, ran.answers, ran.tested, sides.attributes)
    missed = [*_missed(code, ran), *_not_chosen(sides, code, [one for _, one in taken])]
    turned = known.turned([(one.function, test) for one in missed for test in one.on] + ran.names)
    # `c = n > 1 and mask is None and self.causal`, of a model that is not causal: it is false whatever n is.
    settled: set[ast.AST | None] = {value for function, test in ran.names for value in known.settled(function, test)}
    settled |= set(_fixed(sides, code))
    possible = [one for one in missed if turned & set(one.on) and settled.isdisjoint((one.within, *one.on))]
    first, never = taken[0][0] if taken else "", {one.order[:2] for one in possible}
    return list(dict.fromkeys(
        Untried(_place(one), one.question, one.said, ran.nearest.get(one.on[0], first),
                *_marked(code.source(one.function), ran, never))
        for one in sorted(possible, key=lambda one: one.order)
    ))  # fmt: skip


def _marked(
    source: Source | None, ran: _Ran, never: Collection[tuple[str, int]]
) -> tuple[tuple[int, int], tuple[tuple[int, str], ...]]:
    """(first and last line of a function, its lines that ask, each with whether both sides ran)."""
    if source is None:
        return (0, 0), ()
    file, marks = source.code.co_filename, dict[int, str]()
    for test in source.tests:
        if ran.answers.get(test):
            one = "both" if len(ran.answers[test]) == 2 else "one"
            marks[test.lineno] = one if marks.get(test.lineno, one) == one else "one"
    lines = [getattr(node, name) for node in source.nodes for name in ("lineno", "end_lineno") if hasattr(node, name)]
    marks |= {line: "never" for of, line in never if of == file and min(lines) <= line <= max(lines)}
    return (min(lines), max(lines)), tuple(sorted(marks.items()))


def _read(sides: SidesTaken, taken: Sequence[tuple[str, Taken]]) -> tuple[_Ran, CodeRun]:
    ran = _Ran()
    for number, line in itertools.chain.from_iterable(one.lines for _, one in taken):
        ran.lines[number].add(line)
    code = CodeRun(sides.functions, ran.lines)
    for function in sides.functions:
        _read_jumps(function, code.source(function), taken, ran)
    return ran, code


def _fixed(sides: SidesTaken, code: CodeRun) -> Iterator[ast.AST | None]:
    """The comparisons that no size turned, whichever was tried."""
    for one in sides.functions:
        for file, name, line, offset in sides.fixed:
            if (file, name) == (one.code.co_filename, one.code.co_name):
                node = code.expression_at(one, offset)
                yield from [node] if getattr(node, "lineno", 0) == line else []


def _read_jumps(function: Function, source: Source | None, taken: Sequence[tuple[str, Taken]], ran: _Ran) -> None:
    """Note what the tests of a function came out as. taken: what each probe took, with its label."""
    if source is None or not function.jumps:
        return
    for (at, jumped), (test, answer) in sides_of_jumps(source, function.code).items():
        ran.tested[test].update(function.tested.get(at, ((), 0))[0])
        label = next((label for label, one in taken if (function.number, at, jumped) in one.jumps), None)
        if label is not None:
            ran.nearest.setdefault(test, label)
            ran.answers[test].update(() if answer is None else (answer,))
        if isinstance(test, ast.Name):
            ran.names.append((function, test))


def _place(one: _Side) -> str:
    return f"{one.order[0]}:{one.order[1]} in {one.function.code.co_name}"


def _missed(code: CodeRun, ran: _Ran) -> Iterator[_Side]:
    """The sides that did not run, whether an input could take them or not."""
    seen: set[Source] = set()
    for function in code.functions:
        source = code.source(function)
        if source is None or source in seen:
            continue
        seen.add(source)
        for question in source.questions:
            for test, answer in missing_sides(question, ran.answers):
                yield _side(function, (test,), test, _said(test, answer), question.test, question.node)
        if function.number in ran.lines:
            yield from _by_lines(function, source.nodes, ran.lines[function.number])


def _not_chosen(sides: SidesTaken, code: CodeRun, taken: Iterable[Taken]) -> Iterator[_Side]:
    """What never came out otherwise of what is chosen without a jump; of one choice inside of another the inner one."""
    outcomes = defaultdict[Choice, set[Any]](set)
    for choice, outcome in itertools.chain.from_iterable(one.chosen for one in taken):
        outcomes[choice].add(outcome)
    # A value of sizes that no dimension moves is the same for every input.
    alone = ((choice, found) for choice, found in outcomes.items() if len(found) == 1)
    said = {choice: not_chosen(choice, *found) for choice, found in alone if choice.kind != "value" or choice.moves}
    for function in code.functions:
        source = code.source(function) if code.around(function) is function else None
        for choice in itertools.chain.from_iterable(sides.choices.get(function, {}).values()):
            if source is not None and choice in said and not any(_inside(other, choice) for other in said):
                yield from _not_chosen_side(code, function, source, choice, said[choice])


def _not_chosen_side(code: CodeRun, function: Function, source: Source, choice: Choice, said: str) -> Iterator[_Side]:
    node, *on = (source.places[place(one)] for one in (choice.node, *choice.on))
    if not _is_asked_by_callers(code, function, node):
        yield _side(function, tuple(on), node, _cut(said), node, node)


def _is_asked_by_callers(code: CodeRun, function: Function, node: ast.expr) -> bool:
    """Whether a function returns a choice to conditions alone, which are named themselves."""
    source = code.source(function)
    if source is None or not isinstance(source.parents.get(node), ast.Return):
        return False
    calls = [(code.functions[caller], at) for caller, at in function.callers if caller >= 0]
    return bool(calls) and all(_is_asked(code, calling, at) for calling, at in calls)


def _is_asked(code: CodeRun, calling: Function, at: int) -> bool:
    source, node = code.source(calling), code.expression_at(calling, at)
    while source is not None and node is not None and node not in source.tests:
        node = source.parents.get(node)
    return node is not None


def _inside(one: Choice, other: Choice) -> bool:
    return any(part is one.node for part in ast.walk(other.node) if part is not other.node)


def _said(test: ast.expr, answer: bool) -> str:
    if answer:
        return _text(test)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _text(ast.Compare(test.left, [_INVERSE[type(test.ops[0])]()], test.comparators))
    return f"not {_text(test)}" if isinstance(test, ast.Name | ast.Attribute | ast.Call) else f"not ({_text(test)})"


def _text(node: ast.AST) -> str:
    return _cut(ast.unparse(node))


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _by_lines(function: Function, nodes: Sequence[ast.AST], ran: Collection[int]) -> Iterator[_Side]:
    """Cases of a `match`, handlers of a `try` and loops that did not run, by their lines."""
    for node in nodes:
        if isinstance(node, ast.Match) and node.lineno in ran:
            for case in _left_out(node.cases, ran):
                yield _side(function, (node.subject,), case.body[0], f"case {_text(case.pattern)}", node.subject)
        elif isinstance(node, ast.Try) and _ran(node.body, ran):
            yield from _not_raised(function, node, ran)
        elif isinstance(node, ast.For) and node.lineno in ran and _left_out([node], ran):
            yield _side(function, (node.iter,), node, f"{_text(node.iter)} has anything", node.iter)


def _not_raised(function: Function, node: ast.Try, ran: Collection[int]) -> Iterator[_Side]:
    """The handlers that did not run: whatever computes with an input may raise for another one."""
    parts = (part for body in node.body for part in ast.walk(body))
    may = tuple(part for part in parts if isinstance(part, ast.Call | ast.Subscript))
    for handler in _left_out(node.handlers, ran) if may else ():
        said = f"{_text(handler.type)} is raised" if handler.type is not None else "an error is raised"
        yield _side(function, may, handler, said, may[0])


def _left_out(ways: Sequence[_Way], ran: Collection[int]) -> list[_Way]:
    """Those that did not run, and in which something is computed."""
    return [one for one in ways if not _ran(one.body, ran) and not is_idle(one.body)]


def _ran(body: Sequence[ast.stmt], ran: Collection[int]) -> bool:
    return any(line in ran for one in body for line in range(one.lineno, (one.end_lineno or one.lineno) + 1))
