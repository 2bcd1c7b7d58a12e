"""An `if` that pads by amounts which its body computes: they need not be 0 where its test is false.

    if n % 4 > 0:                           if not x.shape[-1] % self.step == 0:
        missing = 4 - n % 4                     x = F.pad(x, (0, self.step - x.shape[-1] % self.step))
        x = F.pad(x, (0, 0, missing, 0))

    if n % 4 > 0:                           functions that return their first argument padded, also as
        x = pad_to_multiple(x, 4)           `q, k = map(partial(pad_at_dim, pad=(0, missing)), (q, k))`

The body is run at every size, and pads by `amount if test else 0`.
"""

from __future__ import annotations

import ast
import functools
import inspect
import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import CodeType, FrameType
from typing import Any

import torch

from onnxpatch.decisions.if_rules.noop_padding import own_padding, pad_call, pads_by_amounts
from onnxpatch.decisions.if_rules.source import (
    OPPOSITES,
    CodeComparison,
    Lines,
    assigned_by,
    at_line,
    comparison,
    ifs,
    is_identity,
    is_plain,
    names_elsewhere,
    names_used,
    tree_of,
    value_in,
)
from onnxpatch.formulas.symbolic import chosen, constant_size, missing_to, symbolic

_NOT_ZERO = ((">", 0), ("!=", 0), ("==", 1))  # what `n % 2` is where it is not 0


def side_that_pads(frame: FrameType) -> bool | None:
    """What to answer so that the body runs, where `frame` is evaluating the test of such an `if`."""
    sides = (side for side, functions in _tests(frame) if all(_pads_first(_code_of(one, frame)) for one in functions))
    return next(sides, None)


def amounts_here(amounts: Sequence[Any], frame: FrameType) -> list[Any] | None:
    """The amounts of the call of `pad` at which `frame` is, made 0 where the test of such an `if` around it is false.

    None where the call is in no such `if`, or is right as it is.
    """
    for here in (frame, frame.f_back) if frame.f_back is not None else (frame,):
        for test, compared, functions in _bodies(here):
            if functions if here is frame else frame.f_code not in [_code_of(one, here) for one in functions]:
                continue
            if pads_by_amounts(here, test.lineno):
                return None  # the amounts are 0 where the test is false
            values = combined([one.values(here) for one in compared], test)
            if values is None:
                return None
            found = [_amount(values, amount) for amount in amounts]
            return None if any(one is None for one in found) else found
    return None


def combined(compared: Sequence[tuple[Any, str, Any]], test: ast.expr) -> tuple[Any, str, Any] | None:
    """One comparison for those that `and` or `or` joins; None where no size is compared."""
    if not any(symbolic(side) for left, _, right in compared for side in (left, right)):
        return None
    if len(compared) == 1:
        return compared[0]
    each = [_indicator(*one) for one in compared]
    if any(one is None for one in each):
        return None
    any_of = isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or)
    return functools.reduce(operator.add if any_of else operator.mul, each), "!=", 0


def _indicator(left: Any, sign: str, right: Any) -> Any:
    """1 where a comparison is true, else 0; of no sizes, which Python has answered, as its own number."""
    if symbolic(left) or symbolic(right) or (sign, right) != ("!=", 0):
        return chosen((left, sign, right), 1, 0)
    return int(bool(left))


def _amount(compared: tuple[Any, str, Any], amount: Any) -> object:
    if isinstance(amount, int) and amount == 0:
        return 0
    left, sign, right = compared
    if not isinstance(left, torch.SymInt) or not isinstance(amount, torch.SymInt):
        return chosen(compared, amount, 0)
    odd = isinstance(right, int) and (sign, right) in _NOT_ZERO and missing_to(amount, 2, itself=True) is not None
    if odd and constant_size(left - amount) == 0:
        return amount
    if sign in (">", "!=") and right == 0:
        # `step - size % step` where `size % step` is not 0: sympy knows it for a multiple in this form alone.
        step = constant_size(left + amount)
        size = missing_to(amount, step) if step else None
        if step and size is not None:
            return (size + (step - 1)) // step * step - size
    return chosen(compared, amount, 0)


@at_line
def _tests(tree: ast.AST) -> Iterator[tuple[Lines, tuple[bool, list[ast.expr]]]]:
    for node, _, functions in _found(tree):
        first = node.test.values[0] if isinstance(node.test, ast.BoolOp) else node.test
        yield node.test, (not isinstance(first, ast.UnaryOp), functions)


@at_line
def _bodies(tree: ast.AST) -> Iterator[tuple[Lines, tuple[ast.expr, list[CodeComparison], list[ast.expr]]]]:
    yield from ((node.body, (node.test, compared, functions)) for node, compared, functions in _found(tree))


def _found(tree: ast.AST) -> Iterator[tuple[ast.If, list[CodeComparison], list[ast.expr]]]:
    """(if, what its test compares, the functions that its body calls on what it assigns, if it pads in there)."""
    for node, _ in ifs(tree):
        if compared := comparisons(node.test):
            if _pads_alone(node, tree):
                yield node, compared, []
            elif functions := _called_on_their_own(node):
                yield node, compared, functions


def _called_on_their_own(node: ast.If) -> list[ast.expr]:
    """The `f` of each `x = f(x, ...)` and `x, y = map(f, (x, y))` in a body of nothing else; [] for any other."""
    statements = list(_statements(node.body))
    found = [one for statement in statements for one in _called_on_its_own(statement)]
    # What the test compared is read again at each padding.
    tested = {name.id for name in names_used([node.test])} if len(statements) > 1 else set()
    written = {name.id for name in names_used(statements) if isinstance(name.ctx, ast.Store)}
    return found if len(found) == len(statements) and tested.isdisjoint(written) else []


def _called_on_its_own(statement: ast.stmt) -> list[ast.expr]:
    target, call = assigned_by(statement) or ("", None)
    if not isinstance(call, ast.Call) or not call.args:
        return []
    mapped = ast.unparse(call.func) == "map" and len(call.args) == 2
    function, own = (call.args[0], call.args[1]) if mapped else (call.func, call.args[0])
    return [function] if ast.unparse(own) == target and is_plain(function, ast.Attribute) else []


def _code_of(function: ast.expr, frame: FrameType) -> CodeType | None:
    try:
        found = value_in(function, frame)
    except (AttributeError, NameError):
        return None
    found = found.func if isinstance(found, functools.partial) else found
    return getattr(inspect.unwrap(found) if callable(found) else found, "__code__", None)


@functools.lru_cache(maxsize=1024)
def _pads_first(code: CodeType | None) -> bool:
    """Whether a function returns its first argument padded, and no more; what else it computes is for the amounts."""
    tree = tree_of(code) if code is not None else None
    if not isinstance(tree, ast.FunctionDef) or not isinstance(last := tree.body[-1], ast.Return):
        return False
    first = next((one.arg for one in tree.args.args if one.arg != "self"), None)
    pads = [one for one in ast.walk(tree) if isinstance(one, ast.stmt) and own_padding(one)]
    written = {name.id for name in names_used(set(tree.body) - set(pads)) if isinstance(name.ctx, ast.Store)}
    returned = pad_call(last.value)
    value = last.value if returned is None else returned.padded
    return isinstance(value, ast.Name) and value.id == first not in written and bool(pads or returned)


def _pads_alone(node: ast.If, tree: ast.AST) -> bool:
    """Whether a body pads, and what it computes beside that matters for its padding alone."""
    statements = list(_statements(node.body))
    assigned = [one[0] for one in map(assigned_by, statements) if one]
    pads = [own_padding(one) is not None for one in statements]
    if len(assigned) < len(statements) or any(
        _calls(one) for one, pad in zip(statements, pads, strict=True) if not pad
    ):
        return False
    own, padded = ({name for name, pad in zip(assigned, pads, strict=True) if pad == which} for which in (False, True))
    # What the test compared is read again where the body pads: it must be what it was.
    once = sum(pads) == 1 or not padded & {name.id for name in names_used([node.test])}
    # The body for another axis makes amounts of the same name anew.
    others = [one for other, _ in ifs(tree) if _makes(other.body[0], own) for one in other.body]
    return bool(padded) and once and not own & (names_elsewhere(tree, [*node.body, *others]) | padded)


def _makes(statement: ast.stmt, names: set[str]) -> bool:
    target, value = assigned_by(statement) or ("", ast.Constant(0))
    return {target} == names and names.isdisjoint(name.id for name in names_used([value]))


def comparisons(test: ast.expr) -> list[CodeComparison]:
    """What a test compares, also with `and` or `or` between; none where the values cannot be read again."""
    parts = test.values if isinstance(test, ast.BoolOp) else [test]
    compared = [one for one in map(_compared, parts) if one is not None]
    alike = len({isinstance(one, ast.UnaryOp) for one in parts}) == 1  # all behind `not`, or none: one answer runs it
    return compared if alike and len(compared) == len(parts) else []


def _compared(test: ast.expr) -> CodeComparison | None:
    """A number, or one comparison, also behind `not`: the values are read again where the body pads."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _compared(test.operand)
        return replace(inner, sign=OPPOSITES[inner.sign]) if inner is not None else None
    compared = comparison(test) or CodeComparison(test, "!=", ast.Constant(0))
    plain = (is_plain(side, ast.Attribute, ast.Subscript, ast.Call) and not _calls(side) for side in compared.sides)
    return compared if all(plain) else None


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of the body, with what is inside an `if` on anything but sizes, such as `if mask is not None`."""
    for statement in body:
        nested = isinstance(statement, ast.If) and not statement.orelse
        if isinstance(statement, ast.If) and nested and (is_identity(statement.test) or _calls(statement.test)):
            yield from _statements(statement.body)
        else:
            yield statement


def _calls(tree: ast.AST) -> bool:
    """Whether something is called, other than `x.size(-1)`."""
    calls = (part.func for part in ast.walk(tree) if isinstance(part, ast.Call))
    return not all(isinstance(one, ast.Attribute) and one.attr == "size" for one in calls)
