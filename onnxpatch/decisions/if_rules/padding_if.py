"""An `if` whose body only pads, by amounts that it computes itself.

    if n % 4 > 0:
        missing = 4 - n % 4
        x = F.pad(x, (0, 0, missing, 0))

Where the test is false the amounts need not be 0, so the body is right at every size only if it pads by
`amount if test else 0`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import torch

from onnxpatch.decisions.if_rules.noop_padding import own_padding, pads_by_amounts
from onnxpatch.decisions.if_rules.source import (
    CodeComparison,
    Lines,
    assigned_by,
    at_line,
    comparison,
    ifs,
    is_identity,
    is_plain,
    names_elsewhere,
)
from onnxpatch.formulas.symbolic import chosen, constant_size, missing_to


def only_pads(frame: FrameType) -> bool:
    """Whether `frame` is evaluating the test of such an `if`."""
    return bool(_tests(frame))


def amounts_here(amounts: Sequence[Any], frame: FrameType) -> list[Any] | None:
    """The amounts of the call of `pad` at which `frame` is, made 0 where the test of such an `if` around it is false.

    None where the call is in no such `if`, or is right as it is.
    """
    for test, compared in _bodies(frame):
        if pads_by_amounts(frame, test.lineno):
            return None  # the amounts are 0 where the test is false
        values = compared.values(frame)
        found = [_amount(values, amount) for amount in amounts]
        return None if any(one is None for one in found) else found
    return None


def _amount(compared: tuple[Any, str, Any], amount: Any) -> object:
    if isinstance(amount, int) and amount == 0:
        return 0
    left, sign, right = compared
    if isinstance(left, torch.SymInt) and isinstance(amount, torch.SymInt) and sign in (">", "!=") and right == 0:
        # `step - size % step` where `size % step` is not 0: sympy knows it for a multiple in this form alone.
        step = constant_size(left + amount)
        size = missing_to(amount, step) if step else None
        if step and size is not None:
            return (size + (step - 1)) // step * step - size
    return chosen(compared, amount, 0)


@at_line
def _tests(tree: ast.AST) -> Iterator[tuple[Lines, None]]:
    yield from ((node.test, None) for node, _ in _found(tree))


@at_line
def _bodies(tree: ast.AST) -> Iterator[tuple[Lines, tuple[ast.expr, CodeComparison]]]:
    yield from ((node.body, (node.test, compared)) for node, compared in _found(tree))


def _found(tree: ast.AST) -> Iterator[tuple[ast.If, CodeComparison]]:
    for node, _ in ifs(tree):
        compared, statements = _compared(node.test), list(_statements(node.body))
        assigned = [assigned_by(one) for one in statements]
        if compared is None or None in assigned:
            continue
        pairs = [(one[0], own_padding(statement)) for statement, one in zip(statements, assigned, strict=True) if one]
        own, padded = ({name for name, call in pairs if (call is not None) == pads} for pads in (False, True))
        simple = all(own_padding(one) or not _calls(one) for one in statements)
        # What the body computes for itself must not matter behind it, nor change what the test compared.
        if padded and simple and not own & (names_elsewhere(tree, node.body) | padded):
            yield node, compared


def _compared(test: ast.expr) -> CodeComparison | None:
    """A name, or one comparison of names and numbers: the values are read again where the body pads."""
    if isinstance(test, ast.Name):
        return CodeComparison(test, "!=", ast.Constant(0))
    compared = comparison(test)
    return compared if compared is not None and is_plain(compared.left) and is_plain(compared.right) else None


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of the body, with what is inside an `if` on anything but sizes, such as `if mask is not None`."""
    for statement in body:
        nested = isinstance(statement, ast.If) and not statement.orelse
        if isinstance(statement, ast.If) and nested and (is_identity(statement.test) or _calls(statement.test)):
            yield from _statements(statement.body)
        else:
            yield statement


def _calls(tree: ast.AST) -> bool:
    return any(isinstance(part, ast.Call) for part in ast.walk(tree))
