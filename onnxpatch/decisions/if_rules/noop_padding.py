"""An `if` that pads or crops, and would pad or crop by 0 where its test is false.

    if pad_h or pad_w:                      if pad_w > 0:             if pad_h or pad_w:
        x = F.pad(x, (0, pad_w, 0, pad_h))      x = x[..., :-pad_w]       return F.pad(x, (0, pad_w, 0, pad_h))
                                                                      return x

So the body may be run at every size. An exporter that traces at a size where the test is false would leave it out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from types import FrameType

from onnxpatch._torch.symbolic_sizes import never_negative
from onnxpatch.decisions.conditionals import says
from onnxpatch.decisions.if_rules.noop_crops import crop_of
from onnxpatch.decisions.if_rules.source import (
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
    parts_of,
    value_in,
)

_MODE = re.compile(r", (mode=)?'(reflect|constant)'")
# A function is known by its spelling alone. `self.pad(x, ...)` may do more than padding, and is none.
_SPELLINGS = ("pad", "functional.pad", "F.pad", "nn.functional.pad", "torch.nn.functional.pad")


@dataclass(frozen=True)
class _PadCall:
    """`F.pad(padded, amounts)`, or `F.pad(padded, pad=amounts)`, with any mode."""

    padded: ast.expr
    amounts: ast.expr

    @property
    def listed(self) -> list[ast.expr]:
        """The amounts, where they are written as a list or tuple."""
        return self.amounts.elts if isinstance(self.amounts, ast.Tuple | ast.List) else []


def pad_call(value: ast.AST | None) -> _PadCall | None:
    """The call of `F.pad` that an expression is; None for any other expression."""
    if not isinstance(value, ast.Call) or ast.unparse(value.func) not in _SPELLINGS or not value.args:
        return None
    amounts = [*value.args[1:2], *(word.value for word in value.keywords if word.arg == "pad")]
    return _PadCall(value.args[0], amounts[0]) if len(amounts) == 1 else None


def own_padding(statement: ast.stmt) -> _PadCall | None:
    """The call of `x = F.pad(x, ...)`."""
    target, value = assigned_by(statement) or ("", None)
    call = pad_call(value)
    return call if call is not None and ast.unparse(call.padded) == target else None


def pads_by_amounts(frame: FrameType, line: int | None = None) -> bool:
    """Whether the body of the `if` at a line changes nothing where its test is false. line: else the frame's."""
    return any(
        all(name in frame.f_locals and never_negative(frame.f_locals[name]) for name in positive)
        and not any(_taken(value_in(test, frame)) for test in untaken)
        for positive, untaken in _noops(frame, line)
    )


def _taken(answer: object) -> bool:
    return answer is not None and answer is not False


def zeros_where_it_raises(frame: FrameType | None) -> bool:
    """Whether a call of `pad`, or the call of its function, is tried, and made with zeros instead where it raises."""
    return frame is not None and (any(_tried(frame)) or (frame.f_back is not None and any(_tried(frame.f_back))))


@at_line
def _tried(tree: ast.AST) -> Iterator[tuple[Lines, bool]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and len(node.handlers) == 1 and not node.orelse and not node.finalbody:
            tried, instead = (_MODE.sub("", ast.unparse(ast.Module(one.body, []))) for one in (node, node.handlers[0]))
            yield node.body, tried == instead


def crops_ends(frame: FrameType) -> bool:
    """Whether `frame` is in the body of `if n: x = x[..., :-n]`: there `-n` may be read as `size - n`.

    Python runs the body where n is not 0, and there the two are the same. Where n is 0, `x[..., :-0]` would be empty.
    """
    return bool(_end_crops(frame))


@at_line
def _end_crops(tree: ast.AST) -> Iterator[tuple[Lines, None]]:
    for node, _ in ifs(tree):
        yield from (([one], None) for one in node.body if _crops_ends(one, _amounts(node.test) or {}))


@at_line
def _noops(tree: ast.AST) -> Iterator[tuple[Lines, tuple[list[str], list[ast.expr]]]]:
    """The tests of such `if`s, each with the names that must never be negative, and the tests inside that must fail."""
    padding: set[str] = set()
    for node, behind in ifs(tree):
        amounts = _amounts(node.test)
        if amounts is None:
            continue
        untaken, test = _adding_nothing(node.body, amounts), ast.unparse(node.test)
        # An `if` of the same test may crop to a size what one above it has padded.
        back = test in padding and _crops_to_size(node.body)
        padding |= set() if untaken is None or any(crop_of([one]) for one in node.body) else {test}
        if untaken is not None or back or _returns_padded(node.body, behind, amounts):
            yield node.test, ([name for name, compared in amounts.items() if compared], untaken or [])


def _amounts(test: ast.expr) -> dict[str, bool] | None:
    """The names that are 0 if `test` is false, each with whether it must never be negative for that to be so."""
    if isinstance(test, ast.BoolOp):
        each = [_amounts(value) for value in parts_of(test, ast.Or)] if isinstance(test.op, ast.Or) else [None]
        return None if None in each else {name: compared for one in each if one for name, compared in one.items()}
    if isinstance(test, ast.Name):
        return {test.id: False}
    compared = comparison(test)
    if compared is None or not isinstance(compared.left, ast.Name) or not is_number(compared.right, 0):
        return None
    return {compared.left.id: compared.sign == ">"} if compared.sign in (">", "!=") else None


def _adding_nothing(body: list[ast.stmt], names: Collection[str]) -> list[ast.expr] | None:
    """The tests of `if x is not None`, `if flag` in a body that must be false; None for a body that changes more.

    But for what stands behind these, it warns, and pads and crops by amounts that are 0 where all `names` are.
    """
    found = []
    for one in body:
        if isinstance(one, ast.If) and not one.orelse and (is_identity(one.test) or isinstance(one.test, ast.Name)):
            inside = _adding_nothing(one.body, names)
            found += [one.test] if inside is None else inside
        elif not (says(one) or _adds_nothing(one, names) or _crops_ends(one, names)):
            return None
    return None if all(map(says, body)) else found


def _adds_nothing(statement: ast.stmt, names: Collection[str]) -> bool:
    """Whether a statement changes nothing where all `names` are 0: `x = F.pad(x, (0, n))`, `length += n`."""
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.op, ast.Add | ast.Sub) and _is_zero(statement.value, names)
    target, value = assigned_by(statement) or ("", None)
    # x = F.pad(x.view(...), ...).view(...) has both, or neither
    call = pad_call(_unshaped(value))
    if call is None or not _is_zero(call.amounts, names):
        return False
    padded = call.padded if _unshaped(value) is value else _unshaped(call.padded)
    return padded is not None and ast.unparse(padded) == target


def _unshaped(value: ast.expr | None) -> ast.expr | None:
    """The `x` of `x.view(...)` and `x.reshape(...)`, which leave its elements in order; else the value itself."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ("view", "reshape"):
        return value.func.value
    return value


def _is_zero(expression: ast.expr, names: Collection[str]) -> bool:
    """Whether an expression of these names and numbers alone is 0, or a list of zeros, where the names are."""
    # A call, an attribute or another name may be anything, also where these names are 0.
    used = {name.id for name in names_used([expression])}
    if not used <= set(names) or not is_plain(expression, ast.Tuple, ast.List):
        return False
    try:
        value = evaluated(expression, dict.fromkeys(used, 0))
    except (ArithmeticError, TypeError):
        return False
    return not any(value) if isinstance(value, tuple | list) else not value


def _returns_padded(body: list[ast.stmt], behind: list[ast.stmt], names: Collection[str]) -> bool:
    """Whether the body returns its input padded by 0, and what stands behind it returns the input as it is."""
    first, after = body[0], behind[0] if behind else None
    call = pad_call(first.value) if len(body) == 1 and isinstance(first, ast.Return) else None
    if call is None or not isinstance(after, ast.Return) or after.value is None or not call.listed:
        return False
    same = isinstance(call.padded, ast.Name) and ast.unparse(after.value) == call.padded.id
    return same and _is_zero(call.amounts, names)


def _crops_to_size(body: list[ast.stmt]) -> bool:
    """Whether the body is `x = x[:, :h, :w]` alone."""
    crop = crop_of(body)
    return crop is not None and crop.to_sizes


def _crops_ends(statement: ast.stmt, names: Collection[str]) -> bool:
    """Whether a statement is a crop, `x = x[..., n // 2 : -(n - n // 2)]`, by amounts that are 0 with `names`."""
    crop = crop_of([statement])
    return crop is not None and all(
        (lower is None or _is_zero(lower, names)) and (upper is None or _is_end(upper, names))
        for _, lower, upper in crop.cut
    )


def _is_end(bound: ast.expr, names: Collection[str]) -> bool:
    return isinstance(bound, ast.UnaryOp) and isinstance(bound.op, ast.USub) and _is_zero(bound.operand, names)
