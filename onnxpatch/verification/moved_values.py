"""Whole numbers that move with a size: lengths, offsets, indices and masks of a call at other sizes.

`lengths = [20, 13]` beside 20 steps means something only as long as its largest is the number of steps. At 25 steps it
becomes [25, 16]. What a tensor means is read off its values: its sum, its largest, one more or one less is a size.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Literal

import torch

Relation = Literal["sum", "largest", "largest + 1", "largest - 1"]
Moves = Sequence[tuple[int, int]]
"""(size in the example, size wanted) of every dimension that may change, those that stay as they are included."""

_ROW = 1 << 16  # elements that are looked at: lengths and offsets are short


def follows(example: torch.Tensor, moves: Moves) -> tuple[Relation, int] | None:
    """Which size of the example the values equal or bound, and that size wanted; None for numbers that mean no size."""
    if not _counts(example):
        return None
    total, largest = int(example.sum()), int(example.max())
    pairs = [*moves, *((a * c, b * d) for (a, b), (c, d) in itertools.combinations(moves, 2))]
    for relation, value in _meanings(total, largest):
        for old, new in pairs:
            if value == old and old > 1 and not (relation == "sum" and example.numel() < 2):
                return relation, new
    return None


def moved(example: torch.Tensor, shape: Sequence[int], moves: Moves) -> torch.Tensor:
    """The example's whole numbers at another shape, so that what equalled or bounded a size does so again.

    Numbers that rise along an axis (offsets, positions) keep their ends and are spread between them; others are
    repeated in their order, so that a mask which is set up to some place stays one.
    """
    if not example.numel():
        return torch.zeros(tuple(shape), dtype=example.dtype, device=example.device)
    relation = follows(example, moves)
    out = example.detach().double()
    for axis, size in enumerate(shape):
        if out.shape[axis] != size:
            out = _resized(out, axis, size)
    if relation is not None and out.numel():
        out = _FITS[relation[0]](out, int(_now(example, relation[0])), relation[1])
    return out.round().to(example.dtype).to(example.device)


def _counts(value: torch.Tensor) -> bool:
    whole = not value.is_floating_point() and not value.is_complex() and value.dtype != torch.bool
    return whole and 0 < value.numel() <= _ROW and int(value.min()) >= 0


def _meanings(total: int, largest: int) -> Sequence[tuple[Relation, int]]:
    return ("sum", total), ("largest", largest), ("largest + 1", largest + 1), ("largest - 1", largest - 1)


def _now(example: torch.Tensor, relation: Relation) -> int:
    return int(example.sum() if relation == "sum" else example.max())


def _resized(values: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    old = values.shape[axis]
    steps = values.diff(dim=axis)
    place = torch.arange(size, dtype=torch.float64, device=values.device)
    if size > 1 and old > 1 and bool((steps >= 0).all()) and bool((steps > 0).any()):
        place = place * (old - 1) / (size - 1)
        low = place.floor().long().clamp(max=old - 2)
        part = (place - low).reshape([-1 if a == axis else 1 for a in range(values.dim())])
        return values.index_select(axis, low) * (1 - part) + values.index_select(axis, low + 1) * part
    return values.index_select(axis, (place * old / size).floor().long().clamp(max=old - 1))


def _to_sum(values: torch.Tensor, now: int, wanted: int) -> torch.Tensor:
    """Whole numbers in the same proportion whose sum is as wanted; what was no zero stays none where there is room."""
    total = float(values.sum())
    shared = (values * (wanted / total)).floor() if total else torch.zeros_like(values)
    if wanted >= values.numel():
        shared = shared.maximum((values > 0).double())
    flat = shared.reshape(-1)
    largest = int(flat.argmax())
    flat[largest] = max(0.0, float(flat[largest]) + wanted - float(flat.sum()))
    return flat.reshape(values.shape)


def _to_largest(values: torch.Tensor, now: int, wanted: int) -> torch.Tensor:
    scaled = (values * (wanted / now)).round().clamp(max=wanted)
    if wanted >= 1:
        scaled = scaled.maximum((values > 0).double())
    if float(scaled.max()) < wanted:  # the row that had the largest was cut away
        flat = scaled.reshape(-1)
        flat[int(flat.argmax())] = wanted
    return scaled


def _to_last_index(values: torch.Tensor, now: int, wanted: int) -> torch.Tensor:
    if now == 0:
        return values
    return (values * ((wanted - 1) / now)).round().clamp(0, wanted - 1)


def _to_one_beyond(values: torch.Tensor, now: int, wanted: int) -> torch.Tensor:
    return _to_largest(values, now, wanted + 1)


_FITS: dict[Relation, Callable[[torch.Tensor, int, int], torch.Tensor]] = {
    "sum": _to_sum,
    "largest": _to_largest,
    "largest + 1": _to_last_index,
    "largest - 1": _to_one_beyond,
}
