"""Looks at the `if` that a running function is evaluating: is it a shortcut past a resize, taken at one size only?

    if npatch == N and w == h:        if size != height or size != width:
        return self.pos_embed             table = F.interpolate(table, (height, width))

Both leave the resize out where sizes are equal, and an exporter that traces at that size leaves it out for good.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

RESIZING = re.compile(r"interpol|resiz|resampl|rescale|upsampl", re.IGNORECASE)


@dataclass(frozen=True)
class Shortcut:
    """The test of an `if` that leaves a resize out where sizes are equal, and its lines in the file."""

    test: ast.expr
    when_equal: bool
    first_line: int
    last_line: int

    def native(self, frame: FrameType, equal: object) -> object:
        """Whether the resize is left out, in the terms of `frame`: a bool, or what `equal(a, b)` gives, combined."""
        taken = _evaluate(self.test, frame, equal)
        return taken if self.when_equal else _negated(taken)


def shortcut_at(frame: FrameType) -> Shortcut | None:
    """The shortcut whose test `frame` is evaluating, or None."""
    found = [s for s in _shortcuts(frame.f_code) if s.first_line <= frame.f_lineno <= s.last_line]
    # Of several on one line, or nested in one, the last is the innermost.
    return found[-1] if found else None


def tree_of(code: CodeType) -> ast.AST | None:
    """The syntax tree of a function, with the line numbers of its file; None where there is no source to read."""
    try:
        lines, first = inspect.getsourcelines(code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError, ValueError):
        return None  # typed in, generated, or a lambda in the middle of a line: nothing to read
    return ast.increment_lineno(tree, first - 1)


# By code object: one parse for each function, however often its `if`s are asked. The source does not change meanwhile.
@functools.lru_cache(maxsize=4096)
def _shortcuts(code: CodeType) -> tuple[Shortcut, ...]:
    tree = tree_of(code)
    # Most functions have no resize in them, so their ifs need not be looked at.
    if tree is None or not any(_resizes(node) for node in ast.walk(tree)):
        return ()
    found: list[Shortcut] = []
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                found += _in_block(statements)
        if isinstance(node, ast.IfExp):
            found += _judge(node.test, [node.body], [node.orelse])
    return tuple(found)


def _in_block(statements: list[ast.stmt]) -> list[Shortcut]:
    found: list[Shortcut] = []
    for position, statement in enumerate(statements):
        if isinstance(statement, ast.If):
            leaving = _leaving(statement)
            # Behind an `if` that returns, the rest of the block is its `else`.
            otherwise = [*statement.orelse, *statements[position + 1 :]] if leaving else statement.orelse
            found += _judge(statement.test, statement.body, otherwise, leaving)
    return found


def _leaving(statement: ast.If) -> ast.expr | None:
    """The test under which the function returns inside the `if`: its own, and where more are nested in it, theirs too;
    None where it goes on."""
    last = statement.body[-1]
    if isinstance(last, ast.Return):
        return statement.test
    inner = [_leaving(one) if isinstance(one, ast.If) and not one.orelse else None for one in statement.body]
    if any(one is None for one in inner):
        return None
    tests = [one for one in inner if one is not None]
    return ast.BoolOp(ast.And(), [statement.test, ast.BoolOp(ast.Or(), tests) if len(tests) > 1 else tests[0]])


def _judge(
    test: ast.expr, body: Sequence[ast.AST], otherwise: Sequence[ast.AST], leaving: ast.expr | None = None
) -> list[Shortcut]:
    relations = _relations(leaving or test, negated=False)
    in_body, in_other = _any_resizes(body), _any_resizes(otherwise)
    # The resize stands on one side only: with one on each side, or none, the `if` is no shortcut.
    skips_when_equal = relations == {"equal"} and in_other and not in_body
    does_when_different = relations == {"different"} and in_body and not in_other
    if skips_when_equal or does_when_different:
        return [Shortcut(leaving or test, skips_when_equal, test.lineno, test.end_lineno or test.lineno)]
    return []


def _any_resizes(statements: Sequence[ast.AST]) -> bool:
    return any(_resizes(node) for statement in statements for node in ast.walk(statement))


def _resizes(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return bool(RESIZING.search(name))


def _relations(test: ast.expr, negated: bool) -> set[str]:
    """How the compared values must relate for `test` to hold: {"equal"}, {"different"}, more, or nothing."""
    if isinstance(test, ast.BoolOp):
        return set().union(*(_relations(value, negated) for value in test.values))
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _relations(test.operand, not negated)
    if not isinstance(test, ast.Compare):
        return set()
    names = {ast.Eq: "equal", ast.NotEq: "different"}
    opposite = {"equal": "different", "different": "equal"}
    # `is`, `in` and their like compare no sizes, and do not change what the rest says.
    found = {names.get(type(operator), "other") for operator in test.ops} - {"other"}
    unclear = any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in test.ops)
    return {"unclear"} if unclear else {opposite[name] if negated else name for name in found}


def _evaluate(node: ast.expr, frame: FrameType, equal: object) -> object:
    if isinstance(node, ast.BoolOp):
        decided = not isinstance(node.op, ast.And)  # what ends the evaluation, as it does in Python
        result: Any = not decided
        for value in node.values:
            result = (_either if decided else _both)(result, _evaluate(value, frame, equal))
            # As Python does: what stands behind it may not be computable, as in `x is None or x.shape[0] == n`.
            if result is decided:
                break
        return result
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _negated(_evaluate(node.operand, frame, equal))
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
        operands = [value_in(operand, frame) for operand in (node.left, *node.comparators)]
        pairs = [_pairwise(a, b, equal) for a, b in itertools.pairwise(operands)]
        result = functools.reduce(_both, pairs)
        return result if isinstance(node.ops[0], ast.Eq) else _negated(result)
    return bool(value_in(node, frame))


def value_in(node: ast.expr, frame: FrameType) -> Any:
    """What an expression is in a running function."""
    code = compile(ast.fix_missing_locations(ast.Expression(node)), "<condition>", "eval")
    return eval(code, frame.f_globals, frame.f_locals)


def _pairwise(a: Any, b: Any, equal: Any) -> object:
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        if len(a) != len(b):
            return False
        return functools.reduce(_both, [equal(x, y) for x, y in zip(a, b, strict=True)], True)
    return equal(a, b)


def _both(a: Any, b: Any) -> Any:
    if isinstance(a, bool):
        return b if a else False
    if isinstance(b, bool):
        return a if b else False
    return a & b


def _either(a: Any, b: Any) -> object:
    if isinstance(a, bool):
        return True if a else b
    if isinstance(b, bool):
        return True if b else a
    return a | b


def _negated(a: Any) -> object:
    return not a if isinstance(a, bool) else ~a
