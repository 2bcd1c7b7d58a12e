"""An `if` that only saves the work for a mask that hides nothing.

    if not padding.any():             if special.any():
        padding = None                    other = self.table(ids)
                                          x = torch.where(special[..., None], other, x)

    if taken.any():                   if taken.sum() == 0:
        rows = taken.nonzero()[:, 0]      continue
        out[rows] += expert(x[rows])  out[taken] = expert(x[taken])

Where the mask has no element, both ways compute the same. So the way that uses the mask may be taken for all data.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType

from onnxpatch.decisions.if_rules.source import (
    CodeComparison,
    Lines,
    assigned_by,
    at_line,
    comparison,
    ifs,
    is_identity,
    is_number,
    names_elsewhere,
    names_used,
    parts_of,
)

_NONE = ("==", "<=")  # between a sum and 0: true where the mask has no element
_FLAT = ("squeeze", "flatten", "view", "reshape")
_SHAPED = frozenset({"unsqueeze", "expand", "expand_as", "view", "view_as", "reshape", "to", "bool", "type_as"})


@dataclass(frozen=True)
class _Question:
    """`mask.any()` or `mask.all()` in a test. kind: "any" or "all". negated: whether `not` stands before it.

    answer: what uses the mask. It differs from `kind` for `mask.sum() == 0`, which is read as `not mask.any()`.
    """

    kind: str
    mask: ast.expr
    negated: bool
    answer: bool


def answer_that_uses_mask(frame: FrameType) -> bool | None:
    """What to answer the `mask.any()` or `mask.all()` that `frame` is asking; None if it is no such `if`."""
    return next(iter(_answers(frame)), None)


@at_line
def _answers(tree: ast.AST) -> Iterator[tuple[Lines, bool]]:
    # With an `else` there is other work to do, not only work to save.
    rounds = {id(one.body[-1]) for one in ast.walk(tree) if isinstance(one, ast.For)}
    for node, behind in ifs(tree):
        asked = _question(node.test)
        if asked is not None:
            # Some element is hidden, or not all are seen.
            filled, body = (asked.kind == "any") != asked.negated, node.body
            if isinstance(body[0], ast.Continue) and behind and id(behind[-1]) in rounds:
                filled, body = not filled, behind
            if _fills(body, asked, tree) if filled else _drops(node, asked):
                yield node.test, asked.answer


def _question(test: ast.expr) -> _Question | None:
    """The only question about data in a test; beside it `x is None` may stand, and a flag of the module."""
    asked = [part for part in parts_of(test, ast.And) if not _is_known(part)]
    # One answer is given for each call of bool(); with two questions it is not known which one is asked.
    if len(asked) != 1:
        return None
    part, negated = asked[0], False
    while isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not):
        part, negated = part.operand, not negated
    sums = _with_zero(part)
    call = part if sums is None else sums.left
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.keywords:
        return None
    given = [] if ast.unparse(call.func.value) == "torch" else [call.func.value]
    given += call.args
    if call.func.attr not in (("any", "all") if sums is None else ("sum",)) or len(given) != 1:
        return None
    if sums is None:
        return _Question(call.func.attr, given[0], negated, call.func.attr == "any")
    none = sums.sign in _NONE
    return _Question("any", given[0], negated != none, not none)


def _with_zero(part: ast.expr) -> CodeComparison | None:
    """`mask.sum() == 0`, or with another sign that asks whether there is an element."""
    found = comparison(part)
    return found if found and is_number(found.right, 0) and found.sign in (*_NONE, ">", "!=") else None


def _is_known(part: ast.expr) -> bool:
    if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not):
        part = part.operand
    own = isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self"
    return own or is_identity(part)


def _drops(node: ast.If, asked: _Question) -> bool:
    """`mask = None`, of the mask that was asked about."""
    assigned = node.body[0]
    if len(node.body) != 1 or not isinstance(assigned, ast.Assign) or len(assigned.targets) != 1:
        return False
    nothing = isinstance(assigned.value, ast.Constant) and assigned.value.value is None
    target, mask = ({name.id for name in names_used([one])} for one in (assigned.targets[0], asked.mask))
    return nothing and target == mask - {"torch"}


def _fills(body: Sequence[ast.stmt], asked: _Question, tree: ast.AST) -> bool:
    """Whether the last statement changes one tensor where the mask says so, and the others only prepare for it."""
    *before, last = body
    made = [(part, one.value) for one in before if isinstance(one, ast.Assign) for part in map(_parts, one.targets)]
    names = {target.id for parts, _ in made for target in parts if isinstance(target, ast.Name)}
    if sum(len(parts) for parts, _ in made) != len(names) or not all(isinstance(one, ast.Assign) for one in before):
        return False
    places = {ast.unparse(target) for parts, value in made for target in parts if _places(value, asked)}
    # What the preparation assigns must not be read behind the `if`: there eager has it for some data only.
    return _fills_hidden(last, asked, places) and not names & names_elsewhere(tree, body)


def _places(value: ast.expr, asked: _Question) -> bool:
    """`torch.where(mask)`, `mask.nonzero()`: the places of its elements, of which some columns may be taken."""
    while isinstance(value, ast.Subscript) or getattr(getattr(value, "func", None), "attr", "") in _FLAT:
        value = value.value if isinstance(value, ast.Subscript) else value.func.value  # type: ignore[attr-defined]
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    given = value.args if ast.unparse(value.func.value) == "torch" else [value.func.value, *value.args]
    return value.func.attr in ("where", "nonzero") and len(given) == 1 and _is_hidden(given[0], asked)


def _fills_hidden(statement: ast.stmt, asked: _Question, places: Collection[str]) -> bool:
    """`x = torch.where(mask, y, x)`, `x = x.masked_fill(mask, y)`, `x.masked_fill_(mask, y)`, `x[mask] = y`, `+= y`.

    places: names of the places of the mask's elements.
    """
    target, value = assigned_by(statement) or (None, getattr(statement, "value", None))
    changed = getattr(statement, "target", None) or getattr(statement, "targets", [None])[0]
    if isinstance(changed, ast.Subscript):
        index = _parts(changed.slice)[0]
        return ast.unparse(index) in places or _is_hidden(changed.slice, asked)
    if not isinstance(statement, ast.Assign | ast.Expr) or not isinstance(value, ast.Call) or value.keywords:
        return False
    if ast.unparse(value.func) == "torch.where" and target is not None and len(value.args) == 3:
        return _selects_hidden(value.args, target, asked)
    if getattr(value.func, "attr", "") == "index_add_" and len(value.args) == 3:
        return ast.unparse(value.args[1]) in places
    return _fills_by_call(value, target, asked)


def _fills_by_call(value: ast.Call, target: str | None, asked: _Question) -> bool:
    """target: what the result is assigned to; None for a call that changes its tensor in place."""
    if not isinstance(value.func, ast.Attribute) or len(value.args) != 2:
        return False
    changed = ast.unparse(value.func.value)
    fills = value.func.attr == ("masked_fill_" if target is None else "masked_fill") and target in (None, changed)
    return fills and _is_hidden(value.args[0], asked)


def _selects_hidden(given: Sequence[ast.expr], target: str, asked: _Question) -> bool:
    """Of `target = torch.where(condition, yes, no)`: whether it keeps what is not hidden."""
    condition, yes, no = given
    if _is_hidden(condition, asked):
        return ast.unparse(no) == target
    return _is_hidden(ast.UnaryOp(ast.Invert(), condition), asked) and ast.unparse(yes) == target


def _is_hidden(condition: ast.expr, asked: _Question) -> bool:
    """Whether a condition is true only where `mask.any()` finds an element, or where `mask.all()` misses one."""
    # `mask.all()` asks whether every element is seen: those that are hidden are the False ones, `~mask`.
    negated = asked.kind == "all"
    mask = ast.unparse(asked.mask)
    while ast.unparse(condition) != mask:
        if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Invert):
            condition, negated = condition.operand, not negated
        # Only what keeps every element once, or repeats it, may stand between: a slice could leave out the True ones.
        elif isinstance(condition, ast.Subscript) and all(map(_keeps_all, _parts(condition.slice))):
            condition = condition.value
        elif isinstance(condition, ast.Call) and getattr(condition.func, "attr", "") in _SHAPED:
            assert isinstance(condition.func, ast.Attribute)
            condition = condition.func.value
        else:
            return False
    return not negated


def _parts(index: ast.expr) -> list[ast.expr]:
    return index.elts if isinstance(index, ast.Tuple) else [index]


def _keeps_all(part: ast.expr) -> bool:
    """`None`, `...` or `:` in an index."""
    if isinstance(part, ast.Slice):
        return part.lower is part.upper is part.step is None
    return isinstance(part, ast.Constant) and part.value in (None, Ellipsis)
