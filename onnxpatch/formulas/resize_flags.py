"""Looks at the `if` that a running function is evaluating: does it only set a flag to resize by size, not by factor?

    for size in x.shape[-2:]:             if any(size % factor for size in x.shape[-2:]):
        if size % factor != 0:                upsample_size = True
            upsample_size = True

Where the sizes divide, resizing to given sizes is the same as resizing by the factor: such a flag may always be set.
"""

from __future__ import annotations

import ast
import functools
from types import CodeType, FrameType

from onnxpatch.formulas.shortcuts import RESIZING, tree_of


def sizes_handed_on(frame: FrameType) -> bool:
    """Whether `frame` is evaluating the test of an `if` that does nothing but set a flag named for a resize."""
    return any(first <= frame.f_lineno <= last for first, last in _flags(frame.f_code))


@functools.lru_cache(maxsize=4096)
def _flags(code: CodeType) -> tuple[tuple[int, int], ...]:
    tree = tree_of(code)
    tests = [node.test for node in ast.walk(tree) if isinstance(node, ast.If) and _sets_flag(node)] if tree else []
    return tuple((test.lineno, test.end_lineno or test.lineno) for test in tests)


def _sets_flag(node: ast.If) -> bool:
    """`if ... % ...:` with `resize_... = True` and nothing else but a `break` and a call that logs."""
    # Without a remainder in its test, the flag is set for another reason than sizes that do not divide.
    divides = any(isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod) for part in ast.walk(node.test))
    assigned = [one for one in node.body if isinstance(one, ast.Assign)]
    others = [one for one in node.body if not isinstance(one, ast.Assign | ast.Break) and not _logs(one)]
    if not divides or node.orelse or others or len(assigned) != 1:
        return False
    [target], value = assigned[0].targets, assigned[0].value
    sets = isinstance(value, ast.Constant) and value.value is True
    # By the name of the flag: only for a resize is it known that setting it always changes nothing.
    return sets and isinstance(target, ast.Name) and bool(RESIZING.search(target.id))


def _logs(statement: ast.stmt) -> bool:
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return False
    return ast.unparse(statement.value.func).startswith(("logger.", "logging.", "warnings.", "print"))
