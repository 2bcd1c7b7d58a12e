"""An `if` that returns early what the rest of the function would make of it too.

    parts = x.shape[1] / 4                       if self.table is not None and self.table.shape[0] >= n:
    if parts.is_integer():                           return self.table[:n]
        return x                                 self.table = torch.arange(n)[:, None] * self.slopes
    missing = math.ceil(parts) * 4 - ...         return self.table
    return F.pad(x, (0, 0, 0, missing))

Where the first test is true there is nothing to pad, so the rest may be done at every size. The example tells whether
that is so: where its test is true, the amounts must be 0.

What the second makes does not depend on what was stored, so it may be made at every size: in the graph the stored table
would end where the model makes a longer one. Whether both are the same is for the comparison to say, as ever: a table
may have been trained since.
"""

from __future__ import annotations

import ast
import builtins
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from onnxpatch.decisions.if_rules.noop_padding import pad_call
from onnxpatch.decisions.if_rules.source import Lines, at_line, comparison, evaluated, ifs, parts_of
from onnxpatch.formulas.symbolic import example_number, symbolic

# What the statements before the padding may call: they are evaluated here once more.
_CALLS = {"ceil": math.ceil, "floor": math.floor, **{n: getattr(builtins, n) for n in ("int", "round", "max", "min")}}


@dataclass(frozen=True)
class _Rest:
    """What stands behind the `if`. computed: (name, expression) of numbers. amounts: of all paddings."""

    computed: tuple[tuple[str, ast.expr], ...]
    amounts: tuple[ast.expr, ...]


def returns_unpadded(frame: FrameType, answer: Any) -> bool:
    """Whether `frame` is evaluating the test of an `if` that returns a value which the rest of the function only pads.

    answer: the test's value.
    """
    for rest in _early_returns(frame):
        taken = example_number(answer)
        return taken is not None and (not taken or _pads_by_nothing(rest, frame))
    return False


def _pads_by_nothing(rest: _Rest, frame: FrameType) -> bool:
    names: dict[str, Any] = {name: _in_example(value) for name, value in frame.f_locals.items()}
    others = {"__builtins__": {}, "math": math, **_CALLS}
    try:
        for name, expression in rest.computed:
            names[name] = evaluated(expression, names, others)
        return not any(any(evaluated(amounts, names, others)) for amounts in rest.amounts)
    except (ArithmeticError, AttributeError, NameError, TypeError, ValueError):
        return False


def _in_example(value: Any) -> object:
    return example_number(value) if isinstance(value, torch.SymInt | torch.SymFloat) or symbolic(value) else value


@at_line
def _early_returns(tree: ast.AST) -> Iterator[tuple[Lines, _Rest]]:
    for node, behind in ifs(tree):
        first, last = node.body[0], behind[-1] if behind else None
        if len(node.body) == 1 and isinstance(first, ast.Return) and isinstance(last, ast.Return):
            rest = _judged(first.value, behind[:-1], last.value)
            if rest is not None:
                yield node.test, rest


def _judged(early: ast.expr | None, statements: list[ast.stmt], late: ast.expr | None) -> _Rest | None:
    if early is None or late is None:
        return None
    computed: list[tuple[str, ast.expr]] = []
    padded: dict[str, ast.expr] = {}
    for statement in statements:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            return None
        if pad_call(statement.value):
            padded[statement.targets[0].id] = statement.value
        elif _only_numbers(statement.value):
            computed.append((statement.targets[0].id, statement.value))
        else:
            return None
    pads = list(_differences(early, late, padded))
    amounts = tuple(one for one in pads if one is not None)
    if not amounts or len(amounts) < len(pads) or not all(map(_only_numbers, amounts)):
        return None
    return _Rest(tuple(computed), amounts)


def _differences(first: ast.expr, other: ast.expr, padded: Mapping[str, ast.expr]) -> Iterator[ast.expr | None]:
    """By how much the first value is padded to make the other one; None for any other difference between the two."""
    if isinstance(first, ast.Tuple) and isinstance(other, ast.Tuple) and len(first.elts) == len(other.elts):
        for pair in zip(first.elts, other.elts, strict=True):
            yield from _differences(*pair, padded)
        return
    given = padded.get(other.id, other) if isinstance(other, ast.Name) else other
    call = pad_call(given)
    if call is not None and ast.unparse(call.padded) == ast.unparse(first):
        yield call.amounts
    # `return False, x` and `return True, F.pad(x, ...)`: a word for the caller on whether it was padded.
    elif not (_is_bool(first) and _is_bool(given)) and ast.unparse(first) != ast.unparse(given):
        yield None


def _is_bool(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, bool)


def _only_numbers(expression: ast.expr) -> bool:
    calls = (part for part in ast.walk(expression) if isinstance(part, ast.Call))
    return all(ast.unparse(call.func).removeprefix("math.") in _CALLS for call in calls)


_NAMED = (ast.Name, ast.Attribute)
_LENGTH = re.compile(r"(?P<of>[\w.]+)\.(?:shape\[|size\()|len\((?P<table>[\w.]+)\)")


def remakes_table(frame: FrameType) -> bool:
    """Whether `frame` is evaluating the test of an `if` that returns a stored table, and else makes it anew."""
    return bool(_tables(frame))


@at_line
def _tables(tree: ast.AST) -> Iterator[tuple[Lines, str]]:
    for node, _ in ifs(tree):
        if not isinstance(node.body[-1], ast.Return):
            continue
        behind = [one for one in _statements(tree) if one.lineno > (node.end_lineno or node.lineno)]
        for stored in filter(None, map(_long, parts_of(node.test, ast.And))):
            if _stored(node.body[-1].value) in (stored, "") and _remade(stored, behind):
                yield node.test, stored


def _stored(returned: ast.expr | None) -> str:
    """What `return table` or `return table[:n]` returns; '' for no value, where the table is kept on the model."""
    while isinstance(returned, ast.Subscript):
        returned = returned.value
    return "" if returned is None else ast.unparse(returned)


def _long(part: ast.expr) -> str:
    """The table in `table.shape[i] >= n`, `table.size(i) > n`, `len(table) > n`, or the same the other way round."""
    compared = comparison(part)
    sides = compared.ordered if compared is not None else None
    found = _LENGTH.match(ast.unparse(sides[1])) if sides is not None else None
    return found["of"] or found["table"] if found else ""


def _statements(tree: ast.AST) -> list[ast.stmt]:
    """The statements of a function without those that hold others, in the order of their lines."""
    found = [one for one in ast.walk(tree) if isinstance(one, ast.stmt) and not hasattr(one, "body")]
    return sorted(found, key=lambda one: one.lineno)


def _remade(stored: str, behind: Sequence[ast.stmt]) -> bool:
    """Whether statements make another table, and do not read the stored one."""
    for statement in behind:
        parts = [part for part in ast.walk(statement) if isinstance(part, _NAMED) and ast.unparse(part) == stored]
        if any(isinstance(part.ctx, ast.Load) for part in parts):
            return False
        if parts:
            return True
        if isinstance(statement, ast.Return):
            return not isinstance(statement.value, ast.Constant | None)
    return False
