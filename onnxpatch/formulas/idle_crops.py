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
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from onnxpatch.formulas.idle_branches import crop_of
from onnxpatch.formulas.shortcuts import tree_of, value_in
from onnxpatch.formulas.symbolic import example_of


@dataclass(frozen=True)
class _Crop:
    """An `if` whose body is a crop alone: its lines, its comparisons, and how much is kept along which axes."""

    first_line: int
    last_line: int
    compared: tuple[tuple[ast.expr, ast.expr], ...]
    source: ast.expr
    kept: tuple[tuple[int, ast.expr], ...]


def crops_back(frame: FrameType) -> bool:
    """Whether `frame` is evaluating the test of an `if` that crops, and that cuts nothing off where sizes are equal."""
    found = [crop for crop in _crops(frame.f_code) if crop.first_line <= frame.f_lineno <= crop.last_line]
    if not found:
        return False
    crop = found[-1]
    sizes = [tuple(example_of(value_in(side, frame)) for side in pair) for pair in crop.compared]
    if any(None in pair for pair in sizes):
        return False
    if any(one != other for one, other in sizes):
        return True  # the example's sizes differ: Python crops
    shape = value_in(crop.source, frame).shape
    kept = [(example_of(shape[axis]), example_of(value_in(bound, frame))) for axis, bound in crop.kept]
    return all(size is not None and most is not None and size <= most for size, most in kept)


@functools.lru_cache(maxsize=4096)
def _crops(code: CodeType) -> tuple[_Crop, ...]:
    tree = tree_of(code)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.If) and not node.orelse] if tree else []
    found = [_crop(node) for node in sorted(nodes, key=lambda node: node.lineno)]
    return tuple(crop for crop in found if crop is not None)


def _crop(node: ast.If) -> _Crop | None:
    compared = _compared(node.test)
    if not compared or crop_of(node.body) is None:
        return None
    assigned: Any = node.body[0]  # as crop_of found it
    value: Any = assigned.value
    called: Any = getattr(value, "func", None)  # x[...].contiguous()
    value = value if called is None else called.value
    kept = _kept(value.slice)
    sides = {ast.unparse(side) for pair in compared for side in pair}
    # What is kept is computed from a size that the test compares: otherwise the one says nothing about the other.
    told = all(sides & {ast.unparse(part) for part in ast.walk(bound)} for _, bound in kept)
    if not kept or not told:
        return None
    last = node.test.end_lineno or node.test.lineno
    return _Crop(node.test.lineno, last, tuple(compared), value.value, tuple(kept))


def _compared(test: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """The pairs of sizes in `a != b or c != d`; nothing for any other test."""
    values = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]
    pairs = []
    for value in values:
        if not isinstance(value, ast.Compare) or [type(op) for op in value.ops] != [ast.NotEq]:
            return []
        sides = (value.left, value.comparators[0])
        if not all(isinstance(side, ast.Name) or _is_shape(side) for side in sides):
            return []
        pairs.append(sides)
    return pairs


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
