"""An `if` whose crop cuts nothing off where its test is false.

    if x.shape[1] > n:        x = F.pad(x, (0, padded_w - w), "reflect")
        x = x[:, :n]          if padded_w != w:
                                  x = x[..., : 2 * w]

    x = F.pad(x, (0, more))
    if more > 0:
        x = x[..., :w]

Python's slices end where the tensor does, so the first crop may be done at every size. Of the second the example tells:
where its sizes are equal, it must be no longer than what the crop keeps. Of the third the sizes tell: it is longer by
`more` than what is kept.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from onnxpatch.decisions.if_rules.source import (
    CodeComparison,
    Lines,
    assigned_by,
    at_line,
    comparison,
    ifs,
    is_identity,
    is_number,
    is_plain,
    parts_of,
    value_in,
)
from onnxpatch.formulas.symbolic import example_of, same_size

_HOLDS: dict[str, Callable[[Any, Any], bool]] = {"!=": operator.ne, "<": operator.lt, ">": operator.gt}


@dataclass(frozen=True)
class _Crop:
    """`x = x[..., a:b]`. source: what is cropped. cut: (axis, a, b) of every slice that has a bound.

    each: `source` is a row of tensors, which are all cropped alike.
    """

    source: ast.expr
    cut: tuple[tuple[int, ast.expr | None, ast.expr | None], ...]
    each: bool = False

    @property
    def to_sizes(self) -> bool:
        """Whether it keeps so many from the start: not a number of them, nor counted from the end."""
        return all(
            (lower is None or is_number(lower, 0))
            and upper is not None
            and not isinstance(upper, ast.Constant | ast.UnaryOp)
            for _, lower, upper in self.cut
        )

    def most(self) -> str | None:
        """How many its only slice keeps at most, from the start or to the end."""
        [(_, lower, upper), *others] = self.cut
        if others or (lower is not None and upper is not None):
            return None
        if isinstance(lower, ast.UnaryOp) and isinstance(lower.op, ast.USub):
            return ast.unparse(lower.operand)
        return ast.unparse(upper) if upper is not None else None


def crop_of(body: list[ast.stmt]) -> _Crop | None:
    """The crop that a body is, and nothing else."""
    target, value = (assigned_by(body[0]) if len(body) == 1 else None) or ("", None)
    if isinstance(value, ast.Call) and ast.unparse(value).endswith("].contiguous()"):
        value = getattr(value.func, "value", None)
    if not isinstance(value, ast.Subscript) or ast.unparse(value.value) != target:
        return None
    return _cropped(value.value, value.slice)


def _crop_of_each(body: list[ast.stmt]) -> _Crop | None:
    """The crop of `xs = map(lambda t: t[:n], xs)`, or of the same as a tuple or list."""
    target, made = (assigned_by(body[0]) if len(body) == 1 else None) or ("", None)
    if isinstance(made, ast.Call) and ast.unparse(made.func) in ("tuple", "list") and len(made.args) == 1:
        made = made.args[0]
    if not isinstance(made, ast.Call) or ast.unparse(made.func) != "map" or len(made.args) != 2:
        return None
    function, rows = made.args
    if not isinstance(function, ast.Lambda) or not isinstance(rows, ast.Name) or rows.id != target:
        return None
    inner, names = function.body, [one.arg for one in function.args.args]
    own = isinstance(inner, ast.Subscript) and [ast.unparse(inner.value)] == names
    return _cropped(rows, inner.slice, each=True) if own and isinstance(inner, ast.Subscript) else None


def _cropped(source: ast.expr, index: ast.expr, each: bool = False) -> _Crop | None:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    whole = next((at for at, part in enumerate(parts) if isinstance(part, ast.Constant) and part.value is ...), None)
    cut = []
    for at, part in enumerate(parts):
        if at == whole:
            continue
        if not isinstance(part, ast.Slice) or part.step is not None:
            return None
        if part.lower is not None or part.upper is not None:
            cut.append((at if whole is None or at < whole else at - len(parts), part.lower, part.upper))
    return _Crop(source, tuple(cut), each) if cut else None


def keeps_what_is_short(frame: FrameType) -> bool:
    """Whether `frame` is evaluating the test of `if n < x.shape[i]: x = x[..., :n]`, or of `x[..., -n:]`.

    Before the comparison may stand `y is not None and`.
    """
    return bool(_caps(frame))


@at_line
def _caps(tree: ast.AST) -> Iterator[tuple[Lines, None]]:
    for node, _ in ifs(tree):
        *others, last = parts_of(node.test, ast.And)
        compared, crop = comparison(last), crop_of(node.body)
        sides = compared.ordered if compared is not None and all(map(is_identity, others)) else None
        if sides is None or crop is None:
            continue
        sizes = tuple(f"{ast.unparse(crop.source)}.{start}" for start in ("shape[", "size("))
        if ast.unparse(sides[1]).startswith(sizes) and crop.most() == ast.unparse(sides[0]):
            yield node.test, None


def crops_back(frame: FrameType) -> bool:
    """Whether `frame` is evaluating the test of an `if` that crops, and that cuts nothing off where sizes are equal."""
    return any(
        _cuts_nothing(crop, compared, frame) if alike else _undoes(crop, compared, frame)
        for crop, compared, alike in _crops_by_sizes(frame)[-1:]
    )


def _undoes(crop: _Crop, compared: list[CodeComparison], frame: FrameType) -> bool:
    """Whether each axis is longer than what is kept of it by a number that the test compares with 0."""
    source, more = value_in(crop.source, frame), [value_in(one.left, frame) for one in compared]
    bounds = [(axis, value_in(bound, frame)) for axis, _, bound in crop.cut if bound is not None]
    sizes = (int, torch.SymInt, torch.Tensor)
    if not isinstance(source, torch.Tensor) or not all(isinstance(n, sizes) for n in (*more, *dict(bounds).values())):
        return False
    return all(any(same_size(source.shape[axis], most + one) for one in more) for axis, most in bounds)


def _cuts_nothing(crop: _Crop, compared: list[CodeComparison], frame: FrameType) -> bool:
    sizes = [(example_of(a), sign, example_of(b)) for a, sign, b in (one.values(frame) for one in compared)]
    if any(a is None or b is None for a, _, b in sizes):
        return False
    if any(_HOLDS[sign](a, b) for a, sign, b in sizes):
        return True  # the test is true in the example: Python crops
    source = value_in(crop.source, frame)
    if not crop.each:
        return _is_within(source, crop, frame)
    # An iterator would be used up.
    return isinstance(source, tuple | list) and all(_is_within(one, crop, frame) for one in source)


def _is_within(source: Any, crop: _Crop, frame: FrameType) -> bool:
    """Whether no axis of a tensor is longer than what the crop keeps of it."""
    kept = [(example_of(source.shape[axis]), example_of(value_in(bound, frame)))
            for axis, _, bound in crop.cut if bound is not None]  # fmt: skip
    return all(size is not None and most is not None and size <= most for size, most in kept)


@at_line
def _crops_by_sizes(tree: ast.AST) -> Iterator[tuple[Lines, tuple[_Crop, list[CodeComparison], bool]]]:
    for node, _ in ifs(tree):
        compared, crop = _compared_sizes(node.test), _crop_of_each(node.body) or crop_of(node.body)
        if compared and crop is not None and crop.to_sizes:
            by_numbers = any(is_number(one.right, 0) for one in compared)
            if _is_read_again(crop) if by_numbers else _is_related(crop, compared):
                yield node.test, (crop, compared, not by_numbers)


def _is_read_again(crop: _Crop) -> bool:
    return not crop.each and all(b is not None and is_plain(b, ast.Attribute, ast.Subscript) for _, _, b in crop.cut)


def _is_related(crop: _Crop, compared: list[CodeComparison]) -> bool:
    """Whether what is kept is computed from a size that the test compares: else one says nothing about the other."""
    sides = {ast.unparse(side) for one in compared for side in one.sides}
    return all(b is None or sides & {ast.unparse(part) for part in ast.walk(b)} for _, _, b in crop.cut)


def _compared_sizes(test: ast.expr) -> list[CodeComparison]:
    """The comparisons in `a != b or c < d or e > 0`; nothing for any other test."""
    found = []
    for part in parts_of(test, ast.Or):
        one = comparison(part)
        if one is None or one.sign not in _HOLDS or not _is_size(one.left):
            return []
        if not _is_size(one.right) and (not is_number(one.right, 0) or one.sign == "<"):
            return []
        found.append(one)
    return found


def _is_size(side: ast.expr) -> bool:
    """`n`, `self.n`, `x.shape[i]` or `pads[i]`."""
    if isinstance(side, ast.Subscript):
        return is_plain(side, ast.Subscript) or (isinstance(side.value, ast.Attribute) and side.value.attr == "shape")
    return isinstance(side, ast.Name) or (isinstance(side, ast.Attribute) and isinstance(side.value, ast.Name))
