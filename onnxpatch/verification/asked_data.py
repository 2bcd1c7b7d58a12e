"""Makes inputs for the numbers that a model's code asks for, where only Python sees the question.

int(ids[0]) == self.end             ids with that number, at several places
ids.tolist() == [7, 8, 9, 10]       ids with that row
round(x.mean().item(), 1) == 0.5    x scaled so that its mean is 0.5
if int(n) == x.shape[0]: ...        n at a size of the inputs
(ids * 3).sum() == 21               one element moved as far as the sum asks for
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from onnxpatch.verification.asked_numbers import Asked
from onnxpatch.verification.branch_recorder import Decisions
from onnxpatch.verification.data_constants import Variant, filled, planted, scaled, with_number, with_rows

_MOST = 6  # numbers, rows, sizes
_BESIDE = 1.002
_BEYOND = 1.5  # times the way to a threshold
Watch = Callable[[Sequence[object]], Decisions | None]


def asked_data(values: Sequence[Any], asked: Asked, example: Decisions) -> Iterator[Variant]:
    """Inputs that are to be compared always: what Python decides on plain numbers is not seen.

    example: what eager was seen to do; it converts data to Python numbers.
    """
    seen = {0, 1, -1, *example.constants.values}
    named = (*asked.numbers, *asked.others)
    known = [one for one in named if one in seen]
    numbers = [one for one in named if one not in seen][:_MOST]
    # In turn: the likely forms of each number before the others.
    forms = [_forms(one, values) for one in numbers if _is_exact(one)]
    rows = (variant for row in asked.sequences[:_MOST] for variant in with_rows(row, values))
    told = _told(values, [*numbers, *known][:_MOST], example.told)
    for turn in itertools.zip_longest(rows, told, _sizes(values), *forms):
        yield from filter(None, turn)


def _forms(number: float, values: Sequence[Any]) -> Iterator[Variant]:
    yield from itertools.islice(found := with_number(number, values), 2)
    for beyond in (number + 1, number - 1):
        yield f"one element {beyond:g}", planted(values, beyond, (-2,))
    yield from found


def _is_exact(number: float) -> bool:
    """Whether float32 has it: at others, such as 0.1, Python's float64 and a graph's float32 decide otherwise."""
    return float(torch.tensor(number, dtype=torch.float32)) == number


def _told(values: Sequence[Any], numbers: Sequence[float], told: Sequence[float]) -> Iterator[Variant]:
    """Floats with which a number that was converted becomes one that is asked for, or is in the middle of an int's
    unit."""
    for number in numbers if told else ():
        parts = {v.numel(): number / v.numel() for v in values if _is_float(v) and v.numel()}
        # Sums of such parts are exact in any order.
        if all(part and (part * 1024).is_integer() for part in parts.values()):
            yield (
                f"elements that sum up to {number:g}",
                [filled(v, number, share=True) if _is_float(v) else v for v in values],
            )
    yield from _scaled(values, numbers, list(dict.fromkeys(told))[:2])


def _scaled(values: Sequence[Any], numbers: Sequence[float], told: Sequence[float]) -> Iterator[Variant]:
    for now, number in itertools.product(told, numbers):
        # A little beside it, so that rounding does not decide which side it is.
        halves = (number + 0.5, number - 0.5) if number == int(number) else ()
        for wanted in (number * _BESIDE, *halves):
            if now and wanted and math.isfinite(wanted / now):
                yield f"scaled to {wanted:g}", [scaled(v, wanted / now) if _is_float(v) else v for v in values]


def _is_float(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _sizes(values: Sequence[Any]) -> Iterator[Variant]:
    """Short whole numbers at the sizes of the other inputs."""
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    for size in list(dict.fromkeys(n for v in tensors for n in v.shape if n > 1))[:_MOST]:
        changed = [filled(v, size) if _is_short(v) else v for v in values]
        yield f"whole numbers {size}, a size of the inputs", changed


def _is_short(value: object) -> bool:
    if not isinstance(value, torch.Tensor) or value.is_floating_point() or value.dtype == torch.bool:
        return False
    return value.numel() <= _MOST


def moved_to_constants(values: Sequence[Any], example: Decisions, watch: Watch) -> Iterator[Variant]:
    """Inputs with one element moved so that a number computed from the data becomes what it is compared with.

    How far the number moves with the element is asked of eager, and taken for the same further on.
    """
    apart = [(k, a, b) for k, (a, b) in enumerate(example.compared[:_MOST]) if a != b and math.isfinite(b - a)]
    for place, name in {0: "first", -1: "last"}.items() if apart else ():
        near = watch([_moved(v, place, 1.0) for v in values])
        for k, a, b in apart:
            step = near.compared[k][0] - a if near is not None and k < len(near.compared) else 0.0
            by = (b - a) / step if step and math.isfinite(step) else 0.0
            if by:
                # Floats go beyond the threshold: at it, rounding decides.
                moved = [_moved(v, place, by * _BEYOND if _is_float(v) else by) for v in values]
                yield f"the {name} element moved by {by:g} or more", moved


def _moved(value: Any, place: int, by: float) -> object:
    if not isinstance(value, torch.Tensor) or not value.numel() or value.dtype == torch.bool or value.is_complex():
        return value
    now = float(value.reshape(-1)[place])
    return planted([value], now + (by if value.is_floating_point() else round(by)), (place,))[0]
