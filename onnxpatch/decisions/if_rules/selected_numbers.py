"""An `if` that only gives numbers other values: each is chosen in the graph, between the new one and the one it had.

    if size[i] <= window[i]:        extra = 0
        window[i] = size[i]         if length <= most:
                                        extra = most - length + 1
                                        x = F.pad(x, (0, extra))

Such a body is carried out at once, and the `if` is answered with False. `window[i]` becomes min(size[i], window[i]) in
the graph; `extra` becomes max(most - length + 1, 0), and `x` is padded by that.
"""

from __future__ import annotations

import ast
import ctypes
import functools
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from onnxpatch.decisions.if_rules.noop_padding import own_padding
from onnxpatch.decisions.if_rules.source import (
    CodeComparison,
    Lines,
    assigned_by,
    at_line,
    comparison,
    evaluated,
    ifs,
    is_identity,
    is_number,
    is_plain,
    value_in,
)
from onnxpatch.formulas.symbolic import chosen, same_size, symbolic

_READ = (ast.Subscript, ast.Attribute, ast.Tuple, ast.Compare, ast.Is, ast.IsNot)


def select_items(frame: FrameType) -> bool:
    """Carry out an `if` that only puts numbers into lists. Returns whether `frame` is evaluating the test of one."""
    for body, compared in _items(frame)[:1]:
        values, selected = compared.values(frame), []
        # First all are computed, then all are written: if one cannot be, the lists are left as they were.
        for target, value in _assigned(body, frame):
            numbers, index = value_in(target.value, frame), value_in(target.slice, frame)
            if not isinstance(numbers, list) or not isinstance(index, int):
                return False
            selected.append((numbers, index, chosen(values, value_in(value, frame), numbers[index])))
            if selected[-1][2] is None:
                return False
        for numbers, index, number in selected:
            numbers[index] = number
        return bool(selected)
    return False


def _assigned(body: list[ast.stmt], frame: FrameType) -> Iterator[tuple[ast.Subscript, ast.expr]]:
    """The assignments of the body, with those inside `if x is None` if x is None."""
    for statement in body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
            yield statement.targets[0], statement.value
        elif isinstance(statement, ast.If) and value_in(statement.test, frame):
            yield from _assigned(statement.body, frame)


def where_one(frame: FrameType, size: Any) -> Any:
    """`a` in `a if size == 1 else f(...)`, where `frame` is calling f; None in any other code."""
    for compared, body in _where_one(frame)[:1]:
        if same_size(value_in(compared, frame), size):
            return value_in(body, frame)
    return None


@at_line
def _where_one(tree: ast.AST) -> Iterator[tuple[Lines, tuple[ast.expr, ast.expr]]]:
    for node in ast.walk(tree):
        compared = comparison(node.test) if isinstance(node, ast.IfExp) else None
        if isinstance(node, ast.IfExp) and compared and compared.sign == "==" and is_number(compared.right, 1):
            yield node.orelse, (compared.left, node.body)


@at_line
def _items(tree: ast.AST) -> Iterator[tuple[Lines, tuple[list[ast.stmt], CodeComparison]]]:
    for node, _ in ifs(tree):
        compared = _compared(node.test)
        if compared is not None and all(map(_puts_number, node.body)):
            yield node.test, (node.body, compared)


def _compared(test: ast.expr) -> CodeComparison | None:
    found = comparison(test)
    return found if found is not None and all(is_plain(side, *_READ) for side in (found.left, found.right)) else None


def _puts_number(statement: ast.stmt) -> bool:
    """`numbers[i] = n`, also inside `if x is None`."""
    if isinstance(statement, ast.If):
        return is_identity(statement.test) and not statement.orelse and all(map(_puts_number, statement.body))
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    one = isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name)
    return one and is_plain(target, *_READ, ast.Store) and is_plain(statement.value, *_READ)


def select_locals(frame: FrameType) -> bool:
    """As `select_items`, for an `if` that gives numbers to names, and pads by them."""
    for body, compared in _locals(frame)[:1]:
        found = _carried_out(body, frame, compared.values(frame))
        # Gives local names of a running function other values, as a debugger does.
        frame.f_locals.update(found)
        if found and sys.version_info < (3, 13):  # there `f_locals` is a copy
            ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
        return bool(found)
    return False


def _carried_out(
    body: list[tuple[str, ast.expr, list[ast.expr]]], frame: FrameType, compared: tuple[Any, str, Any]
) -> dict[str, Any]:
    """What the names of the body are behind the `if`; none where it cannot be carried out at every size."""
    run = functools.partial(evaluated, others=frame.f_globals)
    # Where the test is false, what the body alone knows is 0.
    before = {**{name: 0 for name, _, _ in body}, **frame.f_locals}
    # inside: what is new where the test is true: later lines of the body compute with it.
    names, inside = dict(before), dict(before)
    for name, value, amounts in body:
        if amounts:
            if not all(same_size(run(amount, before), 0) for amount in amounts):
                return {}  # where the test is false, it would pad
            names[name] = inside[name] = run(value, names)
            continue
        inside[name] = run(value, inside)
        same, each = _behind(compared, inside[name], before[name], run(value, before))
        if any(one is None for one in each):
            return {}
        names[name] = run(value, names) if same else tuple(each) if isinstance(before[name], tuple) else each[0]
    return {name: names[name] for name, _, _ in body}


def _behind(compared: tuple[Any, str, Any], *values: object) -> tuple[bool, list[Any]]:
    """(whether a statement changes nothing where the test is false; else what each number is: None if not known).

    values: what it makes, what was there, and what it makes where the test is false.
    """
    new, old, kept = (one if isinstance(one, tuple) else (one,) for one in values)
    if len(new) != len(old) or not all(type(one) is int or symbolic(one) for one in old):
        return False, [None]
    same = all(map(same_size, kept, old))
    return same, [] if same else [chosen(compared, *pair) for pair in zip(new, old, strict=True)]


@at_line
def _locals(tree: ast.AST) -> Iterator[tuple[Lines, tuple[list[tuple[str, ast.expr, list[ast.expr]]], CodeComparison]]]:
    for node, _ in ifs(tree):
        compared, body = _compared(node.test), [_number_or_padding(one) for one in node.body]
        known = [one for one in body if one is not None]
        # Each statement gives a name a number, or pads what it names, and both happen.
        if compared is not None and len(known) == len(body) and len({bool(amounts) for _, _, amounts in known}) == 2:
            yield node.test, (known, compared)


def _number_or_padding(statement: ast.stmt) -> tuple[str, ast.expr, list[ast.expr]] | None:
    """(name, value, amounts of padding) of `name = number` and `name = F.pad(name, ...)`."""
    name, value = assigned_by(statement) or ("", None)
    if value is None or not name.isidentifier():
        return None
    call = own_padding(statement)
    if call is None:
        extreme = isinstance(value, ast.Call) and not value.keywords and ast.unparse(value.func) in ("min", "max")
        plain = value.args if isinstance(value, ast.Call) and extreme else [value]
        return (name, value, []) if all(is_plain(one, *_READ) for one in plain) else None
    amounts = call.listed
    return (name, value, amounts) if amounts and all(is_plain(amount, *_READ) for amount in amounts) else None
