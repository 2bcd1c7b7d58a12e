"""An `if` that leaves a resize out where sizes are equal, or that sets a flag to resize by size and not by factor.

    if npatch == N and w == h:        if size != height or size != width:        for size in x.shape[-2:]:
        return self.pos_embed             table = F.interpolate(...)                 if size % factor != 0:
    return F.interpolate(...)                                                            upsample_size = True

A resize to the same size may be done at every size. One with an offset is not the identity there: so a shortcut that
was passed over is remembered, with when eager takes it, for the resize that runs now.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from onnxpatch.decisions.if_rules.source import Lines, assigned_by, at_line, ifs, value_in
from onnxpatch.formulas.symbolic import as_tensor, relation_of, symbolic

_RESIZING = re.compile(r"interpol|resiz|resampl|rescale|upsampl", re.IGNORECASE)


@dataclass(frozen=True)
class _Shortcut:
    """The test under which a resize is left out, or under which it is done (not when_equal)."""

    test: ast.expr
    when_equal: bool


# Of the thread: another thread may export another model, and its frames are none of this one's callers.
class _PassedOver(threading.local):
    """(frame, 0-d bool tensor: whether eager takes the shortcut) of the functions that run in this thread."""

    def __init__(self) -> None:
        self.entries: list[tuple[FrameType, Tensor]] = []

    def keep_running(self) -> None:
        """Drop the frames that have returned: they would keep the locals of their functions alive."""
        frame: FrameType | None = sys._getframe(1)
        running = []
        while frame is not None:
            running.append(frame)
            frame = frame.f_back
        self.entries = [entry for entry in self.entries if entry[0] in running]


_passed_over = _PassedOver()


def skipped_here() -> Tensor | None:
    """Whether the calling functions skip the resize in eager (0-d bool tensor); None if they have no shortcut."""
    _passed_over.keep_running()
    # The innermost: a function that resizes may be called by another one with a shortcut of its own.
    return _passed_over.entries[-1][1] if _passed_over.entries else None


def resizes_always(frame: FrameType, asked: object) -> bool | None:
    """The answer with which a resize is done, where `frame` is evaluating the test of a shortcut past it; else None.

    asked: a comparison of sizes.
    """
    found, relation = _shortcuts(frame), relation_of(asked)
    if not found or relation not in ("equal", "different"):
        return None
    shortcut = found[-1]  # of several on one line, the innermost
    taken = _evaluate(shortcut.test, frame)
    skipped = taken if shortcut.when_equal else _negated(taken)
    if isinstance(skipped, Tensor):
        _passed_over.keep_running()
        _passed_over.entries = [entry for entry in _passed_over.entries if entry[0] is not frame]
        _passed_over.entries.append((frame, skipped))
    # As if the sizes differed, so that Python goes where the resize is.
    return relation == "different"


def sets_size_flag(frame: FrameType, asked: object) -> bool:
    """Whether `frame` is evaluating the test of an `if` that does nothing but set a flag named for a resize.

    Where the sizes divide, resizing to given sizes is the same as by the factor: such a flag may always be set.
    """
    return relation_of(asked) == "different" and bool(_flags(frame))


@at_line
def _flags(tree: ast.AST) -> Iterator[tuple[Lines, None]]:
    yield from ((node.test, None) for node, _ in ifs(tree) if _sets_flag(node))


def _sets_flag(node: ast.If) -> bool:
    """`if ... % ...:` with `resize_... = True` and nothing else but a `break` and a call that logs."""
    # Without a remainder in its test, the flag is set for another reason than sizes that do not divide.
    divides = any(isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod) for part in ast.walk(node.test))
    acting = [one for one in node.body if not isinstance(one, ast.Break) and not _logs(one)]
    target, value = (assigned_by(acting[0]) if divides and len(acting) == 1 else None) or ("", None)
    # By the name of the flag: only for a resize is it known that setting it always changes nothing.
    sets = isinstance(value, ast.Constant) and value.value is True
    return sets and target.isidentifier() and bool(_RESIZING.search(target))


def _logs(statement: ast.stmt) -> bool:
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return False
    return ast.unparse(statement.value.func).startswith(("logger.", "logging.", "warnings.", "print"))


@at_line
def _shortcuts(tree: ast.AST) -> Iterator[tuple[Lines, _Shortcut]]:
    # Most functions have no resize in them, so their ifs need not be looked at.
    if not _resizes([tree]):
        return
    for node, behind in ifs(tree, with_else=True):
        leaving = _leaving(node)
        # Behind an `if` that returns, the rest of the block is its `else`.
        otherwise = [*node.orelse, *behind] if leaving else node.orelse
        yield from ((node.test, one) for one in _judge(leaving or node.test, node.body, otherwise))
    for one in ast.walk(tree):
        if isinstance(one, ast.IfExp):
            yield from ((one.test, found) for found in _judge(one.test, [one.body], [one.orelse]))


def _leaving(statement: ast.If) -> ast.expr | None:
    """The test under which the function returns inside the `if`: its own, and where more are nested in it, theirs too;
    None where it goes on."""
    if isinstance(statement.body[-1], ast.Return):
        return statement.test
    inner = [_leaving(one) if isinstance(one, ast.If) and not one.orelse else None for one in statement.body]
    tests = [one for one in inner if one is not None]
    if len(tests) < len(inner):
        return None
    return ast.BoolOp(ast.And(), [statement.test, ast.BoolOp(ast.Or(), tests) if len(tests) > 1 else tests[0]])


def _judge(test: ast.expr, body: Sequence[ast.AST], otherwise: Sequence[ast.AST]) -> list[_Shortcut]:
    relations, in_body, in_other = _relations(test, negated=False), _resizes(body), _resizes(otherwise)
    # The resize stands on one side only: with one on each side, or none, the `if` is no shortcut.
    skips_when_equal = relations == {"equal"} and in_other and not in_body
    does_when_different = relations == {"different"} and in_body and not in_other
    return [_Shortcut(test, skips_when_equal)] if skips_when_equal or does_when_different else []


def _resizes(trees: Sequence[ast.AST]) -> bool:
    """Whether a function named for a resize is called."""
    calls = (node.func for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
    names = (one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in calls)
    return any(_RESIZING.search(name) for name in names)


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


# ---- when eager takes the shortcut: bools, and 0-d tensors where sizes are compared


def _evaluate(node: ast.expr, frame: FrameType) -> object:
    if isinstance(node, ast.BoolOp):
        decided = not isinstance(node.op, ast.And)  # what ends the evaluation, as it does in Python
        result: Any = not decided
        for value in node.values:
            result = (_either if decided else _both)(result, _evaluate(value, frame))
            # As Python does: what stands behind it may not be computable, as in `x is None or x.shape[0] == n`.
            if result is decided:
                break
        return result
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _negated(_evaluate(node.operand, frame))
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
        operands = [value_in(operand, frame) for operand in (node.left, *node.comparators)]
        result = functools.reduce(_both, [_equal(a, b) for a, b in itertools.pairwise(operands)])
        return result if isinstance(node.ops[0], ast.Eq) else _negated(result)
    return bool(value_in(node, frame))


def _equal(a: Any, b: Any) -> object:
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        if len(a) != len(b):
            return False
        return functools.reduce(_both, map(_equal, a, b), True)
    if symbolic(a) or symbolic(b):
        return as_tensor(a, torch.int64) == as_tensor(b, torch.int64)
    return bool(a == b)


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
