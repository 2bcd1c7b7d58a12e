"""Reads the Python `if` at which a running function stands: does it only save the work for a mask that hides nothing?

    if not padding.any():             if special.any():
        padding = None                    other = self.table(ids)
                                          x = torch.where(special[..., None], other, x)

Where the mask has no element, both ways compute the same. So the way that uses the mask may be taken for all data.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType

from onnxpatch.formulas.shortcuts import tree_of

_SHAPED = frozenset({"unsqueeze", "expand", "expand_as", "view", "view_as", "reshape", "to", "bool", "type_as"})


@dataclass(frozen=True)
class _Question:
    """`mask.any()` or `mask.all()` in a test. kind: "any" or "all". negated: whether `not` stands before it."""

    kind: str
    mask: ast.expr
    negated: bool


def answer_that_uses_mask(frame: FrameType) -> bool | None:
    """What to answer the `mask.any()` or `mask.all()` that `frame` is asking; None if it is no such `if`."""
    for first, last, answer in _tests(frame.f_code):
        if first <= frame.f_lineno <= last:
            return answer
    return None


@functools.lru_cache(maxsize=4096)
def _tests(code: CodeType) -> tuple[tuple[int, int, bool], ...]:
    tree = tree_of(code)
    found: list[tuple[int, int, bool]] = []
    for node in ast.walk(tree) if tree else ():
        # With an `else` there is other work to do, not only work to save.
        if not isinstance(node, ast.If) or node.orelse:
            continue
        asked = _question(node.test)
        if asked is None or tree is None:
            continue
        uses = asked.kind == "any"  # some element is hidden, or not all are seen
        taken = uses != asked.negated
        if _fills(node, asked, tree) if taken else _drops(node, asked):
            found.append((node.test.lineno, node.test.end_lineno or node.test.lineno, uses))
    return tuple(found)


def _question(test: ast.expr) -> _Question | None:
    """The only question about data in a test; beside it `x is None` may stand, and a flag of the module."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    asked = [part for part in parts if not _is_known(part)]
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
    if isinstance(part, ast.Compare):
        return all(isinstance(operator, ast.Is | ast.IsNot) for operator in part.ops)
    return isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self"


def _drops(node: ast.If, asked: _Question) -> bool:
    """`mask = None`, of the mask that was asked about."""
    assigned = node.body[0]
    if len(node.body) != 1 or not isinstance(assigned, ast.Assign) or len(assigned.targets) != 1:
        return False
    nothing = isinstance(assigned.value, ast.Constant) and assigned.value.value is None
    return nothing and set(_names(assigned.targets[0])) == set(_names(asked.mask)) - {"torch"}


def _fills(node: ast.If, asked: _Question, tree: ast.AST) -> bool:
    """Whether the last statement changes one tensor where the mask says so, and the others only prepare for it."""
    *before, last = node.body
    changed = _filled(last, asked)
    made = [target for one in before for target in (one.targets if isinstance(one, ast.Assign) else [None])]
    if changed is None or not all(isinstance(target, ast.Name) for target in made):
        return False
    # What the preparation assigns must not be read behind the `if`: there eager has it for some data only.
    inside = {id(inner) for one in node.body for inner in ast.walk(one)}
    elsewhere = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in inside}
    return not elsewhere & {target.id for target in made if isinstance(target, ast.Name)}


def _filled(statement: ast.stmt, asked: _Question) -> str | None:
    """The tensor that `x = torch.where(mask, y, x)`, `x = x.masked_fill(mask, y)` or `x[mask] = y` changes."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    value = statement.value if isinstance(statement, ast.Assign | ast.Expr) else None
    if isinstance(target, ast.Subscript):
        return ast.unparse(target.value) if _is_hidden(target.slice, asked) else None
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or value.keywords:
        return None
    whole = ast.unparse(target) if target is not None else ast.unparse(value.func.value)
    if value.func.attr == ("masked_fill" if target is not None else "masked_fill_") and len(value.args) == 2:
        own = ast.unparse(value.func.value) == whole
        return whole if own and _is_hidden(value.args[0], asked) else None
    if ast.unparse(value.func) != "torch.where" or target is None or len(value.args) != 3:
        return None
    condition, yes, no = value.args
    kept = (
        no if _is_hidden(condition, asked) else yes if _is_hidden(ast.UnaryOp(ast.Invert(), condition), asked) else None
    )
    return whole if kept is not None and ast.unparse(kept) == whole else None


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


def _names(expression: ast.expr) -> Iterator[str]:
    return (node.id for node in ast.walk(expression) if isinstance(node, ast.Name))
