"""Reorders the axes of a layout with the kernels that are fast in onnxruntime.

A Transpose that moves one axis past others copies rows; one that permutes many axes goes element by element. So a
permutation that consists of two moves is written as two Transposes, where a Reshape stands between them anyway: one
moves a whole dimension of the input before it is split, the other one of the output after it is merged. Where all sizes
but one are static, the two Transposes stand between two Reshapes to constant shapes.

    b c (h p) (w q) -> b (h w) (p q c)    for images [b, 3, 224, 224] and p = q = 16
    one Transpose     [b, c, h, p, w, q] to [b, h, w, p, q, c], element by element: c moves behind everything
    as written here   Transpose [b, H, W, c]           c alone is moved, before anything is split
                      Reshape   [0, 14, 16, 14, 48]    b h p w (q c): q and c stay together from here on
                      Transpose [b, h, w, p, (q c)]    copies rows of 48
                      Reshape   [0, 196, 768]
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from onnxpatch.formulas.einops.axes import Group
from onnxpatch.formulas.einops.layout import Layout

Dims = tuple[Group, ...]


def reorder_axes(layout: Layout, outputs: Sequence[Group]) -> None:
    """Reorder the layout to `outputs`, which have the same axes."""
    outputs = tuple(outputs)
    if _same_up_to_units(layout.dims, outputs):
        layout.transpose(outputs)
        return
    before, after = _moves(layout.dims, outputs)
    # While the dimension is whole: after it is split, this would be a move of several.
    layout.transpose(before)
    source, target = _axes(before), _axes(after)
    if source != target and not _in_two(layout, source, target):
        layout.reshape(_blocks(layout, before, after))
        layout.transpose(_ordered(layout.dims, target))
    layout.reshape(after)
    layout.transpose(outputs)


def _axes(dims: Sequence[Group]) -> Group:
    return tuple(axis for group in dims for axis in group)


def _same_up_to_units(inputs: Dims, outputs: Dims) -> bool:
    """Whether whole dimensions are permuted, and none is split or merged."""
    return sorted(inputs) == sorted(outputs)


def _moves(inputs: Dims, outputs: Dims) -> tuple[Dims, Dims]:
    """(the inputs after a first move, the outputs before a last move), the pair with the lowest cost."""
    firsts = [inputs, *_moved(inputs)] if any(len(group) > 1 for group in inputs) else [inputs]
    lasts = [outputs, *_moved(outputs)] if any(len(group) > 1 for group in outputs) else [outputs]
    pairs = [(first, last) for first in firsts for last in lasts]
    # Each move before or after costs as much as one in between.
    return min(pairs, key=lambda pair: _cost(*pair) + (pair[0] != inputs) + (pair[1] != outputs))


def _moved(dims: Dims) -> list[Dims]:
    """Every way to move one dimension of a single axis."""
    ways = []
    for place, group in enumerate(dims):
        if len(group) == 1:
            ways += _placed(dims, place, group)
    return ways


def _cost(first: Dims, last: Dims) -> int:
    """The cost of the Transpose in between, in single moves; anything but a single move goes element by element."""
    moves = _distance(_axes(first), _axes(last))
    # 3 is more than the two moves that may be added around it: a first and a last move pay if they leave one in
    # between.
    return moves if moves < 2 else 3


def _distance(source: Group, target: Group) -> int:
    """How many moves of neighbours that stay together bring one order into the other."""
    ranks = [target.index(run[0]) for run in _runs(source, target)]
    return len(ranks) - _longest_rise(ranks)


def _runs(source: Group, target: Group) -> list[Group]:
    """The source, cut where the target has another neighbour."""
    follows = dict(pairwise(target))
    runs: list[Group] = []
    for axis in source:
        if runs and follows.get(runs[-1][-1]) == axis:
            runs[-1] = (*runs[-1], axis)
        else:
            runs.append((axis,))
    return runs


def _longest_rise(ranks: Sequence[int]) -> int:
    best: list[int] = []
    for place, rank in enumerate(ranks):
        best.append(1 + max((best[earlier] for earlier in range(place) if ranks[earlier] < rank), default=0))
    return max(best, default=0)


def _in_two(layout: Layout, source: Group, target: Group) -> bool:
    """Write the Transpose as two single moves, if it consists of two and the last axis changes. Returns whether it did.

    A Reshape has to stand between the two, or onnxruntime joins them to one Transpose again. So this is done only where
    every Reshape has a constant shape.
    """
    between = _halfway(source, target) if source[-1] != target[-1] else None
    if between is None:
        return False
    first, second = _fixed(layout, source, between), _fixed(layout, between, target)
    moved = _ordered(first, between)
    if moved == second or not (layout.by_constant(layout.dims, first) and layout.by_constant(moved, second)):
        return False
    for dims, order in ((first, between), (second, target)):
        layout.reshape(dims)
        layout.transpose(_ordered(dims, order))
    return True


def _halfway(source: Group, target: Group) -> Group | None:
    """An order one move away from both; of several, the one that shares most of its last axes with the target."""
    if _distance(source, target) != 2:
        return None
    runs = tuple(_runs(source, target))
    orders = [_axes(moved) for place, run in enumerate(runs) for moved in _placed(runs, place, run)]
    near = [one for one in orders if _distance(source, one) == 1 and _distance(one, target) == 1]
    return max(near, key=lambda one: _common_end(one, target), default=None)


def _placed(runs: Dims, place: int, run: Group) -> list[Dims]:
    rest = runs[:place] + runs[place + 1 :]
    return [(*rest[:to], run, *rest[to:]) for to in range(len(runs)) if to != place]


def _common_end(one: Group, other: Group) -> int:
    return next((n for n, (a, b) in enumerate(zip(reversed(one), reversed(other), strict=True)) if a != b), len(one))


def _fixed(layout: Layout, source: Group, target: Group) -> Dims:
    """The dimensions that stay together from one order to the other; static neighbours are merged into one."""
    apart: list[list[Group]] = [[(axis,) for axis in run] for run in _runs(source, target)]
    return tuple(piece for pieces in apart for piece in _merged(layout, pieces))


def _blocks(layout: Layout, before: Dims, after: Dims) -> Dims:
    """The dimensions to transpose, split as little as possible. Static neighbours that stay together are one."""
    target = _axes(after)
    runs = [_pieces(run, before) for run in _runs(_axes(before), target)]
    apart = [piece for pieces in runs for piece in pieces]
    if tuple(apart) == before or _ordered(apart, target) == after:
        return tuple(apart)
    return tuple(piece for pieces in runs for piece in _merged(layout, pieces))


def _ordered(dims: Sequence[Group], target: Group) -> Dims:
    return tuple(sorted((group for group in dims if group), key=lambda group: target.index(group[0])))


def _merged(layout: Layout, pieces: list[Group]) -> list[Group]:
    merged = [pieces[0]]
    for piece in pieces[1:]:
        if layout.is_static(piece) and layout.is_static(merged[-1]):
            merged[-1] = (*merged[-1], *piece)
        else:
            merged.append(piece)
    return merged


def _pieces(run: Group, dims: Dims) -> list[Group]:
    """The run cut into whole dimensions where possible, else into axes."""
    whole = {axis: group for group in dims for axis in group if set(group) <= set(run)}
    return list(dict.fromkeys(whole.get(axis, (axis,)) for axis in run))
