"""Moves data until a number computed from it becomes what the model compares it with.

(ids * 3).sum() == 21      one element moved as far as the sum asks for
x.norm() > 100             x scaled
x.mean() < -4              x shifted

How far the number moves along each direction is asked of eager once, and taken for the same further on.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from onnxpatch.verification.branch_recorder import Decisions
from onnxpatch.verification.data_changes import Variant, is_float, is_mask

_MOST = 6  # comparisons
_FURTHEST = 1e12
_BEYOND = 1.5  # times the way to a threshold: at it, rounding decides
Watch = Callable[[Sequence[object]], Decisions | None]
Direction = Callable[[float, float], list[Any]]


def steered(values: Sequence[Any], example: Decisions, watch: Watch) -> Iterator[Variant]:
    """Inputs at which a number that the example's data gave may be on the other side of what it is compared with."""
    apart = list(_apart(example))
    if not apart:
        return
    floats = [i for i, v in enumerate(values) if is_float(v) and not is_mask(v)]
    factors = dict.fromkeys(_factor(a, b, equality) for _, a, b, equality in apart)
    for factor in filter(None, factors if floats else ()):
        yield f"times {factor:.3g}", _multiplied(values, floats, factor)
    for label, direction in _directions(values, floats).items():
        watched = watch(direction(1.0, 1.0))
        near = watched.compared if watched is not None else ()
        for k, a, b, equality in apart:
            if by := _distance(a, b, near[k:]):
                yield f"{label} by {by:.3g}", direction(by, 1.0 if equality else _BEYOND)


def _apart(example: Decisions) -> Iterator[tuple[int, float, float, bool]]:
    """(place, number, what it is compared with, whether for equality) of the comparisons that data may turn."""
    for place, (number, other, equality) in enumerate(example.compared[:_MOST]):
        if number != other and math.isfinite(other - number):
            yield place, number, other, equality


def _distance(now: float, wanted: float, near: Sequence[tuple[float, float, bool]]) -> float:
    """How far to go; 0 where the number does not move. near: the number one step further on, and those behind it."""
    step = near[0][0] - now if near else 0.0
    by = (wanted - now) / step if step and math.isfinite(step) else 0.0
    return by if abs(by) < _FURTHEST else 0.0


def _directions(values: Sequence[Any], floats: Sequence[int]) -> dict[str, Direction]:
    """Ways to move the values: (how far, how many times as far for floats)."""
    found: dict[str, Direction] = {
        "the first element moved": lambda by, times: [_element(v, 0, by, times) for v in values],
        "the last element moved": lambda by, times: [_element(v, -1, by, times) for v in values],
    }
    for some, label in ((floats, "shifted"), *(([i], f"input {i} shifted") for i in floats[:2] if floats[1:])):
        found[label] = functools.partial(_shifted, values, some)
    return found


def _multiplied(values: Sequence[Any], which: Sequence[int], factor: float) -> list[Any]:
    return [v * factor if i in which else v for i, v in enumerate(values)]


def _shifted(values: Sequence[Any], which: Sequence[int], by: float, times: float) -> list[Any]:
    return [v + times * by if i in which else v for i, v in enumerate(values)]


def _factor(number: float, other: float, equality: bool) -> float:
    """Twice as far as needed, or half: at a threshold rounding decides."""
    factor = other / number if number else 0.0
    return factor if equality else factor * (2.0 if abs(number) <= abs(other) else 0.5)


def _element(value: Any, place: int, by: float, times: float) -> object:
    if not isinstance(value, torch.Tensor) or not value.numel() or value.dtype == torch.bool or value.is_complex():
        return value
    out = value.detach().clone(memory_format=torch.contiguous_format)
    out.view(-1)[place] += times * by if value.is_floating_point() else round(by)
    return out
