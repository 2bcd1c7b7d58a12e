"""Looks at the `if` that a running function is evaluating: does it only put other numbers into a list?

    if x.shape[-1] != y.shape[-1]:          if size[i] <= window[i]:
        pads[1] = 1                             window[i] = size[i]

Such a body is carried out at once, each element chosen at run time between the new number and the one it had, and the
`if` is answered with False. For the second `if` above, `window[i]` becomes min(size[i], window[i]) in the graph.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from onnxpatch.formulas.shortcuts import tree_of, value_in
from onnxpatch.formulas.symbolic import chosen

# Without calls: these expressions are evaluated here in place of the model, and a call could have side effects.
_PLAIN = (ast.Name, ast.Constant, ast.Subscript, ast.Attribute, ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop,
          ast.Load, ast.Store, ast.Tuple, ast.Compare, ast.Is, ast.IsNot)  # fmt: skip
_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


def choose_elements(frame: FrameType) -> bool:
    """Carry out the body of the `if` whose test `frame` is evaluating. Returns whether it is such an `if`."""
    for node in _ifs(frame.f_code):
        comparison = comparison_at(node.test, frame)
        if comparison is not None:
            return _carried_out(list(_assigned(node.body, frame)), frame, comparison)
    return False


def comparison_at(test: ast.expr, frame: FrameType) -> tuple[Any, str, Any] | None:
    """(size, sign, size) of a test of one comparison without calls; None where `frame` is evaluating another line."""
    if not isinstance(test, ast.Compare) or not test.lineno <= frame.f_lineno <= (test.end_lineno or test.lineno):
        return None
    if not _compares(test):
        return None
    return value_in(test.left, frame), _SIGNS[type(test.ops[0])], value_in(test.comparators[0], frame)


def is_plain(expression: ast.expr) -> bool:
    """Whether an expression is made of names, numbers and operators alone, so that evaluating it changes nothing."""
    return all(isinstance(part, _PLAIN) for part in ast.walk(expression))


def _carried_out(elements: list[ast.Assign], frame: FrameType, comparison: tuple[Any, str, Any]) -> bool:
    # First all elements are computed, then all are written: if one cannot be, the list is left as it was.
    chosen_numbers: list[tuple[list[Any], int, Any]] = []
    for assigned in elements:
        [target] = assigned.targets
        assert isinstance(target, ast.Subscript)
        numbers, index = value_in(target.value, frame), value_in(target.slice, frame)
        if not isinstance(numbers, list) or not isinstance(index, int):
            return False
        number = chosen(comparison, value_in(assigned.value, frame), numbers[index])
        if number is None:
            return False
        chosen_numbers.append((numbers, index, number))
    for numbers, index, number in chosen_numbers:
        numbers[index] = number
    return bool(chosen_numbers)


def _assigned(body: list[ast.stmt], frame: FrameType) -> Iterator[ast.Assign]:
    """The assignments of the body, with those inside `if x is None` if x is None."""
    for statement in body:
        if isinstance(statement, ast.Assign):
            yield statement
        elif isinstance(statement, ast.If) and value_in(statement.test, frame):
            yield from _assigned(statement.body, frame)


@functools.lru_cache(maxsize=4096)
def _ifs(code: CodeType) -> tuple[ast.If, ...]:
    tree = tree_of(code)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.If)] if tree else []
    return tuple(node for node in nodes if _compares(node.test) and _puts_numbers(node))


def _compares(test: ast.expr) -> bool:
    one = isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _SIGNS
    return one and all(isinstance(part, (*_PLAIN, *_SIGNS)) for part in ast.walk(test))


def _puts_numbers(node: ast.If) -> bool:
    """Whether an `if` without `else` only assigns elements, from expressions without calls."""
    return not node.orelse and all(_puts_number(one) for one in node.body)


def _puts_number(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If):
        test = statement.test
        # `x is None` is decided in Python, alike at every size.
        known = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is | ast.IsNot)
        return known and _puts_numbers(statement)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    one = isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name)
    return one and all(isinstance(part, _PLAIN) for part in (*ast.walk(target), *ast.walk(statement.value)))
