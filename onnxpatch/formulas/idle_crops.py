"""Looks at the `if` that a running function is evaluating: does it crop back what was padded, where sizes differ?

    x = F.pad(x, (0, padded_w - w, 0, padded_h - h), "reflect")
    ...
    if padded_w != w or padded_h != h:
        x = x[:, :, : 2 * h, : 2 * w]

Where the sizes are equal there is nothing to cut off, so the crop may be done at every size. The example tells whether
that is so: where its sizes are equal, it must be no longer than what the crop keeps.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from onnxpatch.formulas.idle_branches import crop_of
from onnxpatch.formulas.shortcuts import tree_of, value_in
from onnxpatch.formulas.symbolic import example_of

_HOLDS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.Gt: operator.gt,
}  # fmt: skip


@dataclass(frozen=True)
class _Crop:
    """An `if` whose body is a crop alone: its lines, its comparisons, and how much is kept along which axes.

    each: whether `source` is a row of tensors, which are all cropped alike.
    """

    first_line: int
    last_line: int
    compared: tuple[tuple[ast.expr, type[ast.cmpop], ast.expr], ...]
    source: ast.expr
    kept: tuple[tuple[int, ast.expr], ...]
    each: bool


def crops_back(frame: FrameType) -> bool:
    """Whether `frame` is evaluating the test of an `if` that crops, and that cuts nothing off where sizes are equal."""
    found = [crop for crop in _crops(frame.f_code) if crop.first_line <= frame.f_lineno <= crop.last_line]
    if not found:
        return False
    crop = found[-1]
    sizes = [(example_of(value_in(a, frame)), sign, example_of(value_in(b, frame))) for a, sign, b in crop.compared]
    if any(a is None or b is None for a, _, b in sizes):
        return False
    if any(_HOLDS[sign](a, b) for a, sign, b in sizes):
        return True  # the test is true in the example: Python crops
    source = value_in(crop.source, frame)
    if crop.each and not isinstance(source, tuple | list):
        return False  # an iterator would be used up
    kept = [
        (example_of(one.shape[axis]), example_of(value_in(bound, frame)))
        for one in (source if crop.each else [source])
        for axis, bound in crop.kept
    ]
    return all(size is not None and most is not None and size <= most for size, most in kept)


@functools.lru_cache(maxsize=4096)
def _crops(code: CodeType) -> tuple[_Crop, ...]:
    tree = tree_of(code)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.If) and not node.orelse] if tree else []
    found = [_crop(node) for node in sorted(nodes, key=lambda node: node.lineno)]
    return tuple(crop for crop in found if crop is not None)


def _crop(node: ast.If) -> _Crop | None:
    compared = _compared(node.test)
    each = _crop_of_each(node.body)
    if not compared or (each is None and crop_of(node.body) is None):
        return None
    assigned: Any = node.body[0]  # as crop_of found it
    value: Any = assigned.value if each is None else each
    called: Any = getattr(value, "func", None)  # x[...].contiguous()
    value = value if called is None else called.value
    kept = _kept(value.slice)
    sides = {ast.unparse(side) for a, _, b in compared for side in (a, b)}
    # What is kept is computed from a size that the test compares: otherwise the one says nothing about the other.
    told = all(sides & {ast.unparse(part) for part in ast.walk(bound)} for _, bound in kept)
    if not kept or not told:
        return None
    last = node.test.end_lineno or node.test.lineno
    source = value.value if each is None else ast.Name(assigned.targets[0].id, ast.Load())
    return _Crop(node.test.lineno, last, tuple(compared), source, tuple(kept), each is not None)


def _crop_of_each(body: list[ast.stmt]) -> ast.Subscript | None:
    """The `t[:n]` of `xs = map(lambda t: t[:n], xs)`, or the same as a tuple or list."""
    made: Any = body[0].value if len(body) == 1 and isinstance(body[0], ast.Assign) else None
    if isinstance(made, ast.Call) and ast.unparse(made.func) in ("tuple", "list") and len(made.args) == 1:
        made = made.args[0]
    if not isinstance(made, ast.Call) or ast.unparse(made.func) != "map" or len(made.args) != 2:
        return None
    function, rows = made.args
    if not isinstance(function, ast.Lambda) or len(function.args.args) != 1 or not isinstance(rows, ast.Name):
        return None
    same = [ast.unparse(target) for target in body[0].targets] == [rows.id]  # type: ignore[attr-defined]
    cropped = function.body
    own = isinstance(cropped, ast.Subscript) and ast.unparse(cropped.value) == function.args.args[0].arg
    return cropped if same and own and isinstance(cropped, ast.Subscript) else None


def _compared(test: ast.expr) -> list[tuple[ast.expr, type[ast.cmpop], ast.expr]]:
    """The comparisons in `a != b or c < d`; nothing for any other test."""
    values = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]
    found = []
    for value in values:
        if not isinstance(value, ast.Compare) or len(value.ops) != 1 or type(value.ops[0]) not in _HOLDS:
            return []
        sides = (value.left, value.comparators[0])
        if not all(isinstance(side, ast.Name) or _is_shape(side) or _is_own(side) for side in sides):
            return []
        found.append((sides[0], type(value.ops[0]), sides[1]))
    return found


def _is_own(side: ast.expr) -> bool:
    return isinstance(side, ast.Attribute) and isinstance(side.value, ast.Name)


def _is_shape(side: ast.expr) -> bool:
    return isinstance(side, ast.Subscript) and isinstance(side.value, ast.Attribute) and side.value.attr == "shape"


def _kept(index: ast.expr) -> list[tuple[int, ast.expr]]:
    """(axis, how much is kept of it) for every slice with a bound; nothing where one does not start at 0."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    whole = next((at for at, part in enumerate(parts) if isinstance(part, ast.Constant) and part.value is ...), None)
    kept = []
    for at, part in enumerate(parts):
        if at == whole or (isinstance(part, ast.Slice) and part.lower is None and part.upper is None):
            continue
        if not isinstance(part, ast.Slice) or part.upper is None or isinstance(part.upper, ast.Constant | ast.UnaryOp):
            return []
        if part.lower is not None and not (isinstance(part.lower, ast.Constant) and part.lower.value == 0):
            return []
        kept.append((at if whole is None or at < whole else at - len(parts), part.upper))
    return kept
