"""Looks at the `if` that a running function is evaluating: does it only pad, by numbers that had a value before?

    extra = 0
    if length <= most:
        extra = most - length + 1
        x = F.pad(x, (0, extra))
    ...                                  goes on with `extra`

Such a body is carried out at once, each number chosen at run time between the new one and the one it had, and the `if`
is answered with False. Above, `extra` becomes max(most - length + 1, 0) in the graph, and `x` is padded by that.
"""

from __future__ import annotations

import ast
import ctypes
import functools
import sys
from types import CodeType, FrameType
from typing import Any

from onnxpatch.formulas.chosen_elements import comparison_at, is_plain
from onnxpatch.formulas.pad_calls import pad_call
from onnxpatch.formulas.shortcuts import tree_of
from onnxpatch.formulas.symbolic import chosen, symbolic


def choose_names(frame: FrameType) -> bool:
    """Carry out the body of the `if` whose test `frame` is evaluating. Returns whether it is such an `if`."""
    for node in _ifs(frame.f_code):
        comparison = comparison_at(node.test, frame)
        if comparison is not None:
            found = _carried_out(node.body, frame, comparison)
            if found:
                _assign(frame, found)
            return bool(found)
    return False


def _carried_out(body: list[ast.stmt], frame: FrameType, comparison: tuple[Any, str, Any]) -> dict[str, Any]:
    """What the names of the body are behind the `if`; none where it cannot be carried out at every size."""
    before, names = dict(frame.f_locals), dict(frame.f_locals)
    # What is new where the test is true: later lines of the body compute with it.
    inside = dict(before)
    for statement in body:
        name, value = _assigned(statement)
        if isinstance(value, ast.Call):
            if any(_in(amount, frame, before) != 0 for amount in _amounts(value)):
                return {}  # where the test is false, it would pad
            names[name] = inside[name] = _in(value, frame, names)
            continue
        inside[name] = _in(value, frame, inside)
        old = before.get(name)
        if isinstance(old, bool) or not (isinstance(old, int) or symbolic(old)):
            return {}
        number = chosen(comparison, inside[name], old)
        if number is None:
            return {}
        names[name] = number
    return {name: names[name] for name, _ in map(_assigned, body)}


def _in(expression: ast.expr, frame: FrameType, names: dict[str, Any]) -> Any:
    code = compile(ast.fix_missing_locations(ast.Expression(expression)), "<chosen>", "eval")
    return eval(code, frame.f_globals, names)


def _assign(frame: FrameType, values: dict[str, Any]) -> None:
    """Give local names of a running function other values, as a debugger does."""
    frame.f_locals.update(values)
    if sys.version_info < (3, 13):  # there `f_locals` is a copy
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


@functools.lru_cache(maxsize=4096)
def _ifs(code: CodeType) -> tuple[ast.If, ...]:
    tree = tree_of(code)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.If)] if tree else []
    return tuple(node for node in nodes if not node.orelse and _only_pads(node.body))


def _only_pads(body: list[ast.stmt]) -> bool:
    """Whether each statement gives a name a number, or pads what it names, and both happen."""
    kinds = [_kind(statement) for statement in body]
    return set(kinds) == {"number", "padding"}


def _kind(statement: ast.stmt) -> str:
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return ""
    if not isinstance(statement.targets[0], ast.Name):
        return ""
    name, value = _assigned(statement)
    if not isinstance(value, ast.Call):
        return "number" if is_plain(value) else ""
    call = pad_call(value)
    listed = call is not None and ast.unparse(call.padded) == name and isinstance(call.amounts, ast.Tuple | ast.List)
    return "padding" if listed and all(is_plain(amount) for amount in _amounts(value)) else ""


def _amounts(value: ast.expr) -> list[ast.expr]:
    call = pad_call(value)
    return list(getattr(call.amounts, "elts", ())) if call is not None else []


def _assigned(statement: Any) -> tuple[str, ast.expr]:
    return statement.targets[0].id, statement.value
