"""Looks at the `if` that a running function is evaluating: does its body only pad, by amounts that it computes itself?

    if n % 4 > 0:
        missing = 4 - n % 4
        x = F.pad(x, (0, 0, missing, 0))

Where the test is false the amounts need not be 0, so the body is right at every size only if it pads by
`amount if test else 0`.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import torch

from onnxpatch.formulas.idle_branches import may_always_run
from onnxpatch.formulas.pad_calls import pads_own_name
from onnxpatch.formulas.shortcuts import tree_of, value_in
from onnxpatch.formulas.symbolic import chosen, constant_size, missing_to
from onnxpatch.messages.user_code import package_of, runs_in

_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


def only_pads(frame: FrameType) -> bool:
    """Whether `frame` is evaluating the test of such an `if`."""
    return any(one.test.lineno <= frame.f_lineno <= (one.test.end_lineno or 0) for one in _padding_ifs(frame.f_code))


def amounts_here(amounts: Any) -> list[Any] | None:
    """The amounts of the call of `pad` that runs now, made 0 where the test of such an `if` around it is false.

    None where the call is in no such `if`, or is right as it is.
    """
    frame: FrameType | None = sys._getframe(2)  # the stand-in's caller
    # torch hands a call on to stand-ins by way of its own functions.
    while frame is not None and (package_of(frame) == "torch" or runs_in(frame, "onnxpatch.patching")):
        frame = frame.f_back
    for node in _padding_ifs(frame.f_code) if frame else ():
        assert frame is not None
        if node.body[0].lineno <= frame.f_lineno <= (node.body[-1].end_lineno or 0):
            if may_always_run(frame, node.test.lineno):
                return None  # the amounts are 0 where the test is false
            comparison = _comparison(node.test, frame)
            found = [_amount(comparison, amount) for amount in amounts]
            return None if any(one is None for one in found) else found
    return None


def _amount(comparison: tuple[Any, str, Any], amount: Any) -> object:
    if isinstance(amount, int) and amount == 0:
        return 0
    left, sign, right = comparison
    if isinstance(left, torch.SymInt) and isinstance(amount, torch.SymInt) and sign in (">", "!=") and right == 0:
        # `step - size % step` where `size % step` is not 0: sympy knows it for a multiple in this form alone.
        step = constant_size(left + amount)
        size = missing_to(amount, step) if step else None
        if step and size is not None:
            return (size + (step - 1)) // step * step - size
    return chosen(comparison, amount, 0)


def _comparison(test: Any, frame: FrameType) -> tuple[Any, str, Any]:
    if isinstance(test, ast.Name):
        return value_in(test, frame), "!=", 0
    return value_in(test.left, frame), _SIGNS[type(test.ops[0])], value_in(test.comparators[0], frame)


@functools.lru_cache(maxsize=4096)
def _padding_ifs(code: CodeType) -> tuple[ast.If, ...]:
    tree = tree_of(code)
    return tuple(_found(tree)) if tree else ()


def _found(tree: ast.AST) -> Iterator[ast.If]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and not node.orelse and _compares(node.test):
            statements = list(_statements(node.body))
            own = {name for one in statements for name in _assigned(one) if not pads_own_name(one)}
            padded = {name for one in statements for name in _assigned(one) if pads_own_name(one)}
            simple = all(isinstance(one, ast.Assign) and (pads_own_name(one) or _plain(one)) for one in statements)
            # What the body computes for itself must not matter behind it, nor change what the test compared.
            if padded and simple and not own & (_names(tree, outside=node) | padded):
                yield node


def _compares(test: ast.expr) -> bool:
    """A name, or one comparison of names and numbers: the values are read again where the body pads."""
    if isinstance(test, ast.Compare):
        sides = (test.left, *test.comparators)
        return len(test.ops) == 1 and type(test.ops[0]) in _SIGNS and all(map(_is_read, sides))
    return isinstance(test, ast.Name)


def _is_read(side: ast.expr) -> bool:
    known = (ast.Name, ast.Constant, ast.BinOp, ast.operator, ast.Load)
    return all(isinstance(part, known) for part in ast.walk(side))


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of the body, with what is inside an `if` on anything but sizes, such as `if mask is not None`."""
    for statement in body:
        nested = isinstance(statement, ast.If) and not statement.orelse and not _compares_numbers(statement.test)
        yield from _statements(statement.body) if isinstance(statement, ast.If) and nested else [statement]


def _compares_numbers(test: ast.expr) -> bool:
    if isinstance(test, ast.Compare):
        return not all(isinstance(sign, ast.Is | ast.IsNot) for sign in test.ops)
    return not isinstance(test, ast.Call)


def _plain(statement: ast.Assign) -> bool:
    return not any(isinstance(part, ast.Call) for part in ast.walk(statement.value))


def _assigned(statement: ast.stmt) -> Iterator[str]:
    yield from (ast.unparse(target) for target in getattr(statement, "targets", ()))


def _names(tree: ast.AST, outside: ast.If) -> set[str]:
    inside = {id(part) for statement in outside.body for part in ast.walk(statement)}
    return {part.id for part in ast.walk(tree) if isinstance(part, ast.Name) and id(part) not in inside}
