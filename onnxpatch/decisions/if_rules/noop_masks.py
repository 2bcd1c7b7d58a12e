"""An `if` that only saves the work for a mask that hides nothing.

    if not padding.any():             if special.any():
        padding = None                    other = self.table(ids)
                                          x = torch.where(special[..., None], other, x)

Where the mask has no element, both ways compute the same. So the way that uses the mask may be taken for all data.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType

from onnxpatch.decisions.if_rules.source import (
    Lines,
    assigned_by,
    at_line,
    ifs,
    is_identity,
    names_elsewhere,
    names_used,
    parts_of,
)

_SHAPED = frozenset({"unsqueeze", "expand", "expand_as", "view", "view_as", "reshape", "to", "bool", "type_as"})


@dataclass(frozen=True)
class _Question:
    """`mask.any()` or `mask.all()` in a test. kind: "any" or "all". negated: whether `not` stands before it."""

    kind: str
    mask: ast.expr
    negated: bool


def answer_that_uses_mask(frame: FrameType) -> bool | None:
    """What to answer the `mask.any()` or `mask.all()` that `frame` is asking; None if it is no such `if`."""
    return next(iter(_answers(frame)), None)


@at_line
def _answers(tree: ast.AST) -> Iterator[tuple[Lines, bool]]:
    # With an `else` there is other work to do, not only work to save.
    for node, _ in ifs(tree):
        asked = _question(node.test)
        if asked is not None:
            uses = asked.kind == "any"  # some element is hidden, or not all are seen
            if _fills(node, asked, tree) if uses != asked.negated else _drops(node, asked):
                yield node.test, uses


def _question(test: ast.expr) -> _Question | None:
    """The only question about data in a test; beside it `x is None` may stand, and a flag of the module."""
    asked = [part for part in parts_of(test, ast.And) if not _is_known(part)]
    # One answer is given for each call of bool(); with two questions it is not known which one is asked.
    if len(asked) != 1:
        return None
    part, negated = asked[0], False
    while isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not):
        part, negated = part.operand, not negated
    if not isinstance(part, ast.Call) or not isinstance(part.func, ast.Attribute) or part.keywords:
        return None
    if part.func.attr not in ("any", "all"):
        return None
    given = [] if ast.unparse(part.func.value) == "torch" else [part.func.value]
    given += part.args
    return _Question(part.func.attr, given[0], negated) if len(given) == 1 else None


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


def _fills(node: ast.If, asked: _Question, tree: ast.AST) -> bool:
    """Whether the last statement changes one tensor where the mask says so, and the others only prepare for it."""
    *before, last = node.body
    made = [target for one in before for target in (one.targets if isinstance(one, ast.Assign) else [None])]
    names = {target.id for target in made if isinstance(target, ast.Name)}
    if not _fills_hidden(last, asked) or not all(isinstance(target, ast.Name) for target in made):
        return False
    # What the preparation assigns must not be read behind the `if`: there eager has it for some data only.
    return not names & names_elsewhere(tree, node.body)


def _fills_hidden(statement: ast.stmt, asked: _Question) -> bool:
    """`x = torch.where(mask, y, x)`, `x = x.masked_fill(mask, y)`, `x.masked_fill_(mask, y)` or `x[mask] = y`."""
    target, value = assigned_by(statement) or (None, getattr(statement, "value", None))
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
        return target is not None and _is_hidden(statement.targets[0].slice, asked)
    if not isinstance(statement, ast.Assign | ast.Expr) or not isinstance(value, ast.Call) or value.keywords:
        return False
    if ast.unparse(value.func) == "torch.where" and target is not None and len(value.args) == 3:
        return _selects_hidden(value.args, target, asked)
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
