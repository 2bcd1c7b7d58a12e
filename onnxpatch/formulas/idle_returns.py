"""Looks at the `if` that a running function is evaluating: does it return early what the rest would pad by nothing?

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
import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch

from onnxpatch.formulas.pad_calls import PadCall, pad_call
from onnxpatch.formulas.shortcuts import tree_of
from onnxpatch.formulas.symbolic import example_number, symbolic

# What the statements before the padding may call: they are evaluated here once more.
_CALLS = {"ceil": math.ceil, "floor": math.floor, **{n: getattr(builtins, n) for n in ("int", "round", "max", "min")}}


@dataclass(frozen=True)
class _Early:
    """first_line, last_line: of the test. computed: (name, expression) of numbers. amounts: of all paddings."""

    first_line: int
    last_line: int
    computed: tuple[tuple[str, ast.expr], ...]
    amounts: tuple[ast.expr, ...]


def returns_unpadded(frame: FrameType, answer: Any) -> bool:
    """Whether `frame` is evaluating the test of an `if` that returns a value which the rest of the function only pads.

    answer: the test's value.
    """
    for early in _early_returns(frame.f_code):
        if early.first_line <= frame.f_lineno <= early.last_line:
            taken = example_number(answer)
            return taken is not None and (not taken or _pads_by_nothing(early, frame))
    return False


def _pads_by_nothing(early: _Early, frame: FrameType) -> bool:
    names = {name: _in_example(value) for name, value in frame.f_locals.items()}
    try:
        for name, expression in early.computed:
            names[name] = _evaluated(expression, names)
        return not any(any(_evaluated(amounts, names)) for amounts in early.amounts)
    except (ArithmeticError, AttributeError, NameError, TypeError, ValueError):
        return False


def _in_example(value: Any) -> object:
    return example_number(value) if isinstance(value, torch.SymInt | torch.SymFloat) or symbolic(value) else value


def _evaluated(expression: ast.expr, names: dict[str, Any]) -> Any:
    code = compile(ast.fix_missing_locations(ast.Expression(expression)), "<amounts>", "eval")
    return eval(code, {"__builtins__": {}, "math": math, **_CALLS}, names)


@functools.lru_cache(maxsize=4096)
def _early_returns(code: CodeType) -> tuple[_Early, ...]:
    tree = tree_of(code)
    return tuple(_found(tree)) if tree else ()


def _found(tree: ast.AST) -> Iterator[_Early]:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for place, one in enumerate(body if isinstance(body, list) else []):
            if isinstance(one, ast.If) and not one.orelse and len(one.body) == 1:
                early = _judged(one.test, one.body[0], body[place + 1 :])  # type: ignore[index]
                if early:
                    yield early


def _judged(test: ast.expr, early: ast.stmt, rest: list[ast.stmt]) -> _Early | None:
    last = rest[-1] if rest else None
    if not isinstance(early, ast.Return) or not isinstance(last, ast.Return) or not (early.value and last.value):
        return None
    computed: list[tuple[str, ast.expr]] = []
    padded: dict[str, ast.expr] = {}
    for statement in rest[:-1]:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            return None
        if pad_call(statement.value):
            padded[statement.targets[0].id] = statement.value
        elif _only_numbers(statement.value):
            computed.append((statement.targets[0].id, statement.value))
        else:
            return None
    pads = list(_differences(early.value, last.value, padded))
    amounts = tuple(call.amounts for call in pads if call is not None)
    if not amounts or len(amounts) < len(pads) or not all(map(_only_numbers, amounts)):
        return None
    return _Early(test.lineno, test.end_lineno or test.lineno, tuple(computed), amounts)


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
