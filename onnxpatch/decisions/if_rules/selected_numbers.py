"""An `if` that only gives numbers other values: each is chosen in the graph, between the new one and the one it had.

    if size[i] <= window[i]:        extra = 0
        window[i] = size[i]         if length <= most:
                                        extra = most - length + 1
                                        x = F.pad(x, (0, extra))

Such a body is carried out at once, and the `if` is answered with False. `window[i]` becomes min(size[i], window[i]) in
the graph; `extra` becomes max(most - length + 1, 0), and `x` is padded by that.

    if n % step == 0:                       pad = 0 if n % step == 0 else step - n % step
        pad = max(kernel - step, 0)
    else:
        pad = max(kernel - n % step, 0)

Here Python runs either side, and behind it `pad` is written anew. An export with branches has both sides instead.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import ctypes
import functools
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, TypeAlias

import torch

from onnxpatch._torch.cond import constant_answer
from onnxpatch.decisions.ask import forking
from onnxpatch.decisions.if_rules.computed_padding import combined, comparisons
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
    names_used,
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


# ------------------------------------------------------------------ two sides
_CALLS = {"min", "max", "int", "abs", "math.ceil", "math.floor"}
_COUNTED = "remainder from 1 on"  # a name that no code has
_Names: TypeAlias = "dict[str, Any]"


def select_numbers(frame: FrameType, asked: object) -> bool:
    """As `select_items`, for an `if` whose sides only give names whole numbers."""
    if forking() or (isinstance(asked, torch.SymBool) and constant_answer(asked) is not None):
        return False
    if isinstance(frame.f_trace, _Behind) and frame.f_trace.runs(frame):  # an `elif`, or the next part of an `and`
        return True
    own = {*frame.f_code.co_varnames, *frame.f_code.co_cellvars}
    for node in _choices(frame)[:1]:
        with contextlib.suppress(ArithmeticError, KeyError, NameError, TypeError):  # may not run at every size
            found = _joined(node, frame)
            if found.keys() <= own:
                frame.f_trace = _Behind(node, found, frame.f_trace)
                if sys.gettrace() is None:
                    sys.settrace(_none_else)
                return True
    return False


class _Behind:
    """Gives names other values behind a statement, as a debugger does: Python calls this at each line."""

    def __init__(self, statement: ast.stmt, values: _Names, before: Any) -> None:
        self._values, self._before = values, before
        self._first, self._last = statement.lineno, statement.end_lineno or statement.lineno

    def runs(self, frame: FrameType) -> bool:
        return self._first <= frame.f_lineno <= self._last

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and not self.runs(frame):
            frame.f_locals.update(self._values)
        if event != "line" or not self.runs(frame):
            frame.f_trace = self._before
            if sys.gettrace() is _none_else:
                sys.settrace(None)
        return self._before and self._before(frame, event, argument)


def _none_else(frame: FrameType, event: str, argument: object) -> None:
    """Python follows the lines of a function only while it is asked about others too: about none."""


def _joined(node: ast.If, frame: FrameType) -> _Names:
    """What the names are behind an `if` at every size; TypeError where that is no whole number, or not known."""
    compared = comparisons(node.test)
    values = combined([one.values(frame) for one in compared], node.test) if compared else None
    pairs = _pairs(node, frame) if values is not None else {}
    found = _of_remainder(node, compared[0], pairs, frame) if len(compared) == 1 else None
    if found is None and values is not None:
        found = {name: pair[0] if same_size(*pair) else chosen(values, *pair) for name, pair in pairs.items()}
    if not found or any(number is None for number in found.values()):
        raise TypeError
    return found


def _pairs(node: ast.If, frame: FrameType) -> dict[str, list[Any]]:
    before = frame.f_locals
    one, other = (_after(side, frame, before) for side in (node.body, node.orelse))
    pairs = {name: [side.get(name, before.get(name)) for side in (one, other)] for name in {**one, **other}}
    if not all(type(number) is int or symbolic(number) for pair in pairs.values() for number in pair):
        raise TypeError
    return pairs


def _after(side: list[ast.stmt], frame: FrameType, names: Mapping[str, Any]) -> _Names:
    """What a side makes of these names."""
    if side and isinstance(side[0], ast.If):
        return _joined(side[0], frame)
    made = dict(names)
    exec(compile(ast.Module(side, []), "<if>", "exec"), frame.f_globals, made)
    return {name.id: made[name.id] for name in names_used(side) if isinstance(name.ctx, ast.Store)}


def _of_remainder(
    node: ast.If, compared: CodeComparison, pairs: dict[str, list[Any]], frame: FrameType
) -> _Names | None:
    """What the side for `n % step != 0` makes of a remainder from 1 to `step`, if at `step` that is the other side's.

    It takes `n` once, where a choice between both takes it up to four times: convolutions in a row would multiply that.
    """
    rest, (at, side) = compared.left, {"==": (0, node.orelse), "!=": (1, node.body)}.get(compared.sign, (0, []))
    if not is_number(compared.right, 0) or not isinstance(rest, ast.BinOp) or not isinstance(rest.op, ast.Mod):
        return None
    step = value_in(rest.right, frame)
    if not side or isinstance(side[0], ast.If) or type(step) is not int or step < 1:
        return None
    side = [_Counted(ast.unparse(rest)).visit(copy.deepcopy(one)) for one in side]
    last = _after(side, frame, {**frame.f_locals, _COUNTED: step})
    if last.keys() != pairs.keys() or not all(same_size(last[name], pair[at]) for name, pair in pairs.items()):
        return None
    again = pairs.keys() & {name.id for name in names_used([rest])}
    counted = (value_in(rest.left, frame) + (step - 1)) % step + 1
    return None if again else _after(side, frame, {**frame.f_locals, _COUNTED: counted})


class _Counted(ast.NodeTransformer):
    def __init__(self, rest: str) -> None:
        self._rest = rest

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if ast.unparse(node) == self._rest:
            return ast.copy_location(ast.Name(_COUNTED, ast.Load()), node)
        return self.generic_visit(node)


@at_line
def _choices(tree: ast.AST) -> Iterator[tuple[Lines, ast.If]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(one := node.value, ast.IfExp):
            body, orelse = (ast.copy_location(ast.Assign(node.targets, side), node) for side in (one.body, one.orelse))
            node = ast.copy_location(ast.If(one.test, [body], [orelse]), node)
        if isinstance(node, ast.If) and _gives_numbers(node):
            yield node.test, node


def _gives_numbers(node: ast.stmt) -> bool:
    if isinstance(node, ast.If):
        sides = [side for side in (node.body, node.orelse) if side]
        nested = [isinstance(one, ast.If) for side in sides for one in side if len(side) > 1]
        return not any(nested) and all(_gives_numbers(one) for side in sides for one in side)
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return False
    names = isinstance(node.targets[0], ast.Name | ast.Tuple) and is_plain(node.targets[0], ast.Tuple, ast.Store)
    called = [ast.unparse(one.func) for one in ast.walk(node.value) if isinstance(one, ast.Call)]
    return names and {*called} <= _CALLS and is_plain(node.value, *_READ, ast.Call)
