"""An `if` that returns early what the rest of the function would pad by nothing.

    parts = x.shape[1] / 4
    if parts.is_integer():
        return x
    missing = math.ceil(parts) * 4 - x.shape[1]
    return F.pad(x, (0, 0, 0, missing))

Where the test is true there is nothing to pad, so the rest may be done at every size. The example tells whether that is
so: where its test is true, the amounts must be 0.
"""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from onnxpatch.decisions.if_rules.noop_padding import PadCall, pad_call
from onnxpatch.decisions.if_rules.source import Lines, at_line, evaluated, ifs
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
    amounts = tuple(call.amounts for call in pads if call is not None)
    if not amounts or len(amounts) < len(pads) or not all(map(_only_numbers, amounts)):
        return None
    return _Rest(tuple(computed), amounts)


def _differences(first: ast.expr, other: ast.expr, padded: Mapping[str, ast.expr]) -> Iterator[PadCall | None]:
    """What pads the first value to make the other one; None for any other difference between the two."""
    if isinstance(first, ast.Tuple) and isinstance(other, ast.Tuple) and len(first.elts) == len(other.elts):
        for pair in zip(first.elts, other.elts, strict=True):
            yield from _differences(*pair, padded)
        return
    given = padded.get(other.id, other) if isinstance(other, ast.Name) else other
    call = pad_call(given)
    if call is not None and ast.unparse(call.padded) == ast.unparse(first):
        yield call
    # `return False, x` and `return True, F.pad(x, ...)`: a word for the caller on whether it was padded.
    elif not (_is_bool(first) and _is_bool(given)) and ast.unparse(first) != ast.unparse(given):
        yield None


def _is_bool(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, bool)


def _only_numbers(expression: ast.expr) -> bool:
    calls = (part for part in ast.walk(expression) if isinstance(part, ast.Call))
    return all(ast.unparse(call.func).removeprefix("math.") in _CALLS for call in calls)
