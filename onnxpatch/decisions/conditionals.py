"""Reads the conditionals in a function's source, and tells which of its jumps decides which of them.

    if a and (b or not c): ...        one question, three tests: a, b, c; each is a conditional jump in the byte code
    y = p if x.any() else q           x.any()
    [i for i in ids if i > 3]         i > 3
    while n > 3: ...                  n > 3, twice in the byte code
    match n: case 1: ...              each case, by the lines that ran; so are the handlers of a `try`

A side on which the model only raises or warns is none that a graph could be wrong for.
"""

from __future__ import annotations

import ast
import dis
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType

from onnxpatch.decisions.definitions import children
from onnxpatch.decisions.functions_run import instructions_of, is_conditional
from onnxpatch.decisions.if_rules.source import at_line, ifs, tree_of

Way = tuple[int, bool]  # (offset of a jump, whether it jumped)
_ASKING = (ast.If, ast.While, ast.IfExp, ast.Assert, ast.comprehension, ast.match_case, ast.BoolOp)
SAYING = frozenset({"warn", "warning", "warning_once", "info", "debug", "print", "error", "critical"})


@dataclass(frozen=True, eq=False)
class _Question:
    """A condition as a whole. wanted: the sides on which something else is computed; node: the statement that asks."""

    node: ast.AST
    test: ast.expr
    wanted: frozenset[bool]


@dataclass(eq=False)
class Source:
    """The source of a function: its tree, with the lines of the file, and what was read from it."""

    code: CodeType
    tree: ast.AST

    @functools.cached_property
    def tests(self) -> list[ast.expr]:
        """Every expression that a jump may test: an operand of `and`, the condition of an `if`."""
        return [test for one in self.questions for test in _tests(one.test)]

    @functools.cached_property
    def places(self) -> dict[tuple[int | None, ...], ast.expr]:
        """By (line, column, last line, last column): the expression there, the outermost of several."""
        found: dict[tuple[int | None, ...], ast.expr] = {}
        for node in self.parents:
            if isinstance(node, ast.expr):
                found.setdefault((node.lineno, node.col_offset, node.end_lineno, node.end_col_offset), node)
        return found

    @functools.cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """By node: the one around it. The outer ones first."""
        return _parents(self.tree)

    @functools.cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node but operators, the outer ones first."""
        return [self.tree, *self.parents]

    @functools.cached_property
    def questions(self) -> list[_Question]:
        """The conditions."""
        return list(_questions(self.nodes))


@functools.lru_cache(maxsize=512)
def source_of(code: CodeType) -> Source | None:
    """The source of a function; None where there is none, or where it cannot be read."""
    tree = tree_of(code)
    return Source(code, tree) if tree is not None else None


def _parents(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    found, waiting = dict[ast.AST, ast.AST](), [tree]
    for node in waiting:  # grows
        below = children(node)
        found |= dict.fromkeys(below, node)
        waiting += below
    return found


# ------------------------------------------------------------------ what the source asks
def _questions(nodes: Iterable[ast.AST]) -> Iterator[_Question]:
    asking = [node for node in nodes if isinstance(node, _ASKING)]
    parts = {part for node in asking for test in _asked(node) for part in _structure(test)}
    for node in asking:
        if not isinstance(node, ast.BoolOp):
            yield from (_Question(node, test, _wanted(node)) for test in _asked(node))
        elif node not in parts:
            yield _Question(node, node, frozenset({True, False}))


def _wanted(node: ast.AST) -> frozenset[bool]:
    """The sides on which something else is computed."""
    if isinstance(node, ast.If):
        idle = {True: is_idle(node.body), False: bool(node.orelse) and is_idle(node.orelse)}
        return frozenset(side for side in idle if not idle[side])
    # A loop that ends has taken the other side, and on the other side of an assertion there is nothing.
    return frozenset({True} if isinstance(node, ast.While | ast.Assert) else {True, False})


def _asked(node: ast.AST) -> Iterator[ast.expr]:
    """The conditions that a node has as a whole; a value `a and b` is one itself."""
    if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
        yield node.test
    elif isinstance(node, ast.comprehension):
        yield from node.ifs
    elif isinstance(node, ast.match_case) and node.guard is not None:
        yield node.guard
    elif isinstance(node, ast.BoolOp):
        yield from node.values


def _parts(test: ast.expr) -> list[ast.expr]:
    """What `and`, `or`, `not` and `x if y else z` make a condition of; [] for one that a jump of its own tests."""
    if isinstance(test, ast.BoolOp):
        return test.values
    if isinstance(test, ast.IfExp):
        return [test.body, test.orelse]
    return [test.operand] if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else []


def _structure(test: ast.expr) -> Iterator[ast.expr]:
    """A condition and all that it is made of."""
    yield test
    for part in _parts(test):
        yield from _structure(part)


def is_idle(body: Collection[ast.stmt]) -> bool:
    """Whether statements compute nothing of the output: they raise, warn, or pass."""
    return all(says(one) or isinstance(one, ast.Raise | ast.Pass) for one in body) or any(
        isinstance(one, ast.Raise) for one in body
    )


def says(one: ast.stmt) -> bool:
    """Whether a statement prints, logs or warns, and nothing else."""
    call = one.value if isinstance(one, ast.Expr) else None
    if isinstance(call, ast.Constant):  # a docstring, or `...`
        return True
    function = call.func if isinstance(call, ast.Call) else None
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in SAYING


def only_says(frame: FrameType) -> bool:
    """Whether `frame` is evaluating the test of an `if` in which it would only print, log or warn."""
    return bool(_told(frame))


@at_line
def _told(tree: ast.AST) -> Iterator[tuple[ast.expr, None]]:
    return ((node.test, None) for node, _ in ifs(tree) if all(map(says, node.body)))


def _tests(test: ast.expr) -> Iterator[ast.expr]:
    """What is tested by a jump of its own: of `a and not b`, a and b."""
    return (one for one in _structure(test) if not _parts(one))


# ------------------------------------------------------------------ which jump decides what
def sides_of_jumps(source: Source, code: CodeType) -> dict[Way, tuple[ast.expr, bool | None]]:
    """By jump and way: the test that it decides, and its answer; None as the answer where another test follows.

    code: the function's, or that of a comprehension or lambda in it.
    """
    by_test: dict[ast.expr, list[tuple[int, str]]] = {}
    for at, name, test in _jumps_with_tests(source, code):
        by_test.setdefault(test, []).append((at, name))
    found: dict[Way, tuple[ast.expr, bool | None]] = {}
    for test, jumps in by_test.items():
        links = len(test.ops) if isinstance(test, ast.Compare) else 1
        for place, (at, name) in enumerate(sorted(jumps)):
            whole = place % links == links - 1  # `1 < n < 5` is true only where its last part is
            for jumped in (True, False):
                answer = _answer(name, test, jumped)
                found[at, jumped] = test, answer if whole or answer is False else None
    return found


def _answer(name: str, test: ast.expr, jumped: bool) -> bool:
    if name.endswith("NONE"):
        none = jumped == (not name.endswith("NOT_NONE"))
        is_not = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot)
        return none != is_not
    return jumped == ("_IF_TRUE" in name)


def _jumps_with_tests(source: Source, code: CodeType) -> Iterator[tuple[int, str, ast.expr]]:
    """(offset, name, the test) of each conditional jump whose test is known."""
    instructions = instructions_of(code)
    if not hasattr(code, "co_positions"):
        yield from _by_lines(source, instructions)
        return
    before = None
    for one in instructions:
        if is_conditional(one):
            # The jump has the position of the statement in some versions. What is computed last is the test itself.
            test = _innermost(source.tests, before)
            if test is not None:
                yield one.offset, one.opname, test
        elif one.opname not in ("EXTENDED_ARG", "CACHE", "TO_BOOL", "COPY", "NOT_TAKEN", "NOP"):
            before = getattr(one, "positions", None)


def _innermost(tests: list[ast.expr], at: object) -> ast.expr | None:
    """The smallest test that contains a position."""
    first = (getattr(at, "lineno", None), getattr(at, "col_offset", None))
    last = (getattr(at, "end_lineno", None), getattr(at, "end_col_offset", None))
    if None in (*first, *last):
        return None
    around = [one for one in tests if _begin(one) <= first and last <= _end(one)]
    return max(around, key=lambda one: (_begin(one), tuple(-n for n in _end(one))), default=None)


def _begin(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _by_lines(source: Source, instructions: Sequence[dis.Instruction]) -> Iterator[tuple[int, str, ast.expr]]:
    """Where Python keeps no columns (3.10): the tests of a line in their order, if it has as many jumps."""
    jumps: dict[int, list[dis.Instruction]] = {}
    line = 0
    for one in instructions:
        line = one.starts_line or line
        if is_conditional(one):
            jumps.setdefault(line, []).append(one)
    for line, mine in jumps.items():
        tests = [one for one in dict.fromkeys(source.tests) if one.lineno == line]
        if len(tests) == 1:  # more jumps than one: a `while`, or the parts of `1 < n < 5`
            tests *= len(mine)
        if len(tests) == len(mine):
            yield from ((one.offset, one.opname, test) for one, test in zip(mine, tests, strict=True))


# ------------------------------------------------------------------ what was not taken
Answers = Mapping[ast.expr, Collection[bool]]


def missing_sides(question: _Question, answers: Answers) -> Iterator[tuple[ast.expr, bool]]:
    """(test, answer) of what a condition never was: of `a and b` that was never true, the first part that never was.

    answers: of each test that ran. A part that would only have brought about what was the outcome anyway is no loss.
    """
    # A value `a and b` has no jump of its own for its last part: what that part is decides nothing here.
    known = {**answers}
    if question.node is question.test and isinstance(question.test, ast.BoolOp):
        for test in _tests(question.test.values[-1]):
            known.setdefault(test, {True, False})
    taken = _taken(question.test, known)
    if taken:
        yield from _missing(question.test, known, question.wanted)


def _taken(test: ast.expr, answers: Answers) -> set[bool]:
    """The answers that a condition has had."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return {not one for one in _taken(test.operand, answers)}
    if isinstance(test, ast.IfExp):
        return _taken(test.body, answers) | _taken(test.orelse, answers)
    if isinstance(test, ast.BoolOp):
        ends = isinstance(test.op, ast.Or)  # the answer of one part that ends it
        parts = [_taken(value, answers) for value in test.values]
        return {ends for one in parts if ends in one} | ({not ends} if (not ends) in parts[-1] else set())
    return set(answers.get(test, ()))


def _missing(test: ast.expr, answers: Answers, wanted: Collection[bool]) -> Iterator[tuple[ast.expr, bool]]:
    taken = _taken(test, answers)
    if not taken:
        return
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _missing(test.operand, answers, {not one for one in wanted})
    elif isinstance(test, ast.IfExp):
        for part in (test.body, test.orelse):
            yield from _missing(part, answers, wanted)
    elif isinstance(test, ast.BoolOp):
        yield from _missing_of_parts(test, answers, wanted, taken)
    else:
        yield from ((test, side) for side in wanted if side not in taken)


def _missing_of_parts(
    test: ast.BoolOp, answers: Answers, wanted: Collection[bool], taken: Collection[bool]
) -> Iterator[tuple[ast.expr, bool]]:
    ends = isinstance(test.op, ast.Or)  # the answer of one part that ends it
    passed = (not ends) in taken
    parts = [value for value in test.values if _taken(value, answers)]
    if not passed and (not ends) in wanted:
        # The part at which it ended. The ones behind it never ran.
        yield from _missing(parts[-1], answers, {not ends})
    for part in parts if passed and ends in wanted else ():
        yield from _missing(part, answers, {ends})
