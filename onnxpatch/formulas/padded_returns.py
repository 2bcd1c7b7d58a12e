"""Looks at the `if` that a running function is evaluating: does it return its input padded, or as it is?

    if pad_h or pad_w:
        return F.pad(x, (0, pad_w, 0, pad_h), mode="reflect")
    return x

Padding by nothing changes nothing, so the padded input may be returned at every size.
"""

from __future__ import annotations

import ast
import functools
import itertools
from types import CodeType, FrameType

from onnxpatch.formulas.shortcuts import tree_of


def returns_padded(frame: FrameType) -> bool:
    """Whether `frame` is evaluating the test of such an `if`."""
    return any(first <= frame.f_lineno <= last for first, last in _tests(frame.f_code))


@functools.lru_cache(maxsize=4096)
def _tests(code: CodeType) -> tuple[tuple[int, int], ...]:
    tree = tree_of(code)
    found: list[tuple[int, int]] = []
    for node in ast.walk(tree) if tree else ():
        for field in ("body", "orelse"):
            statements = getattr(node, field, None)
            for one, after in itertools.pairwise(statements if isinstance(statements, list) else []):
                if isinstance(one, ast.If) and not one.orelse and _pads_or_leaves(one, after):
                    found.append((one.test.lineno, one.test.end_lineno or one.test.lineno))
    return tuple(found)


def _pads_or_leaves(node: ast.If, after: ast.stmt) -> bool:
    padded = node.body[0]
    if len(node.body) != 1 or not isinstance(padded, ast.Return) or not isinstance(after, ast.Return):
        return False
    call = padded.value
    if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith("pad") or len(call.args) < 2:
        return False
    given, left = call.args[0], after.value
    same = isinstance(given, ast.Name) and isinstance(left, ast.Name) and given.id == left.id
    return same and _only(call.args[1], _amounts(node.test))


def _amounts(test: ast.expr) -> set[str]:
    """The names that are 0 where `test` is false: `a or b > 0 or c != 0`."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]
    names: set[str] = set()
    for part in parts:
        # `> 0` is taken for `!= 0`: an amount to pad is not negative.
        if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.Gt | ast.NotEq):
            part = part.left
        if isinstance(part, ast.Name):
            names.add(part.id)
    return names


def _only(amounts: ast.expr, names: set[str]) -> bool:
    """Whether a tuple or list has nothing but these names and zeros."""
    if not isinstance(amounts, ast.Tuple | ast.List):
        return False
    zero = lambda one: isinstance(one, ast.Constant) and one.value == 0  # noqa: E731
    return all(zero(one) or (isinstance(one, ast.Name) and one.id in names) for one in amounts.elts)
