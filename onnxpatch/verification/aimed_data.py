"""Gives data the values that a forward compares it with, which random data never has: planted, or steered there.

    x == 7                       planted: an input with a 7
    (x == 0).sum() == 3          an input with three zeros
    x // 0.7                     exact multiples of 0.7
    ids == eos_token_id          an input with that id
    {(3, 5): 2.0}.get(tuple(ids.tolist()))      an input with that row
    (ids * 3).sum() == 21        steered: one element moved as far as the sum asks for
    x.norm() > 100               x scaled
    x.mean() < -4                x shifted

Planted values come from a recorded run of eager and from constants in the code. How far a number computed from the data
moves along each direction is asked of eager once, and taken for the same further on.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from onnxpatch.verification.branch_recorder import Decisions
from onnxpatch.verification.data_variants import Variant, is_float, is_mask

_MOST = 6  # values of one kind
_MOST_PLANTED = 4096
_LONGEST = 1 << 20  # elements of an input that gets such values
Planted = tuple[str, list[Any], object]  # the label, the values, what was put into them


def planted(
    values: Sequence[object], example: Decisions, more: Sequence[float] = (), rows: Iterable[Sequence[float]] = ()
) -> Iterator[Planted]:
    """Inputs at which a comparison of data may have the other outcome, likely ones first. more, rows: in the code."""
    for row in rows:
        yield from ((*made, row) for made in _with_rows(row, values))
    known = list(example.values)[:_MOST]
    # Such as the 3 of `(x == 0).sum() == 3`: a number of elements.
    counts = [int(n) for n in example.equals if n == int(n) and 1 < n < 64][:2]
    for value in dict.fromkeys([*known, *list(example.equals)[:_MOST], *more[:_MOST]]):
        made = _with_number(value, values, counts if value in known else ())
        yield from ((*one, value) for one in made)


def multiples(values: Sequence[object], example: Decisions) -> Iterator[Variant]:
    """Inputs at exact multiples of the steps that the data is divided by."""
    for step in list(example.steps)[:2]:
        yield f"multiples of {step:g}", [_multiples(v, step) for v in values]


def _with_number(value: float, values: Sequence[object], counts: Sequence[int] = ()) -> Iterator[Variant]:
    """The values with a number at one element, at some, at all. counts: at how many."""
    yield f"one element {value:g}", _planted(values, value, (-2,))
    yield f"the first element {value:g}", _planted(values, value, (0,))
    yield f"the last element {value:g}", _planted(values, value, (-1,))
    for count in counts:
        yield f"{count} elements {value:g}", _planted(values, value, range(count))
    for where, place in (("first", 0), ("last", -1)):
        yield f"the {where} of each row {value:g}", [_in_rows(v, value, place) for v in values]
    yield f"all elements {value:g}", [_filled(v, value) for v in values]
    for first, name in enumerate(("first", "second")):
        yield f"every other element {value:g}, from the {name}", _planted(values, value, range(first, _MOST_PLANTED, 2))


def _takes(tensor: object, value: float) -> bool:
    if not isinstance(tensor, torch.Tensor) or not 0 < tensor.numel() <= _LONGEST:
        return False
    if tensor.is_floating_point():
        return True
    if tensor.dtype == torch.bool or tensor.is_complex() or value != int(value):
        return False
    return torch.iinfo(tensor.dtype).min <= value <= torch.iinfo(tensor.dtype).max  # bytes have no -2


def _planted(values: Sequence[Any], value: float, places: Sequence[int]) -> list[object]:
    """The values with a number at these places, counted from the end if negative."""
    return [_at(v, value, places) if _takes(v, value) else v for v in values]


def _at(tensor: torch.Tensor, value: float, places: Sequence[int]) -> torch.Tensor:
    out = tensor.detach().clone(memory_format=torch.contiguous_format)
    at = {max(-out.numel(), place) for place in places if place < out.numel()} or {-1}
    out.view(-1)[sorted(at)] = value
    return out


def _in_rows(tensor: Any, value: float, place: int) -> object:
    if not _takes(tensor, value) or tensor.dim() < 2:
        return tensor
    out = tensor.detach().clone()
    out.select(-1, place).fill_(value)
    return out


def _with_rows(row: Sequence[float], values: Sequence[object]) -> Iterator[Variant]:
    """The values with the row at its usual places."""
    for place, where in ((0, "start"), (1, "end of the first row"), (-1, "end")):
        yield f"{_words(row)} at the {where}", [_with_row(v, row, place) for v in values]


def _with_row(tensor: Any, row: Sequence[float], place: int) -> object:
    """The tensor with the row at its start, at the end of its first row (1), or at its end (-1)."""
    if not _takes_all(tensor, row) or tensor.dim() == 0 or tensor.shape[-1] < len(row):
        return tensor
    out = tensor.detach().clone(memory_format=torch.contiguous_format)
    start = {0: 0, 1: tensor.shape[-1] - len(row), -1: tensor.numel() - len(row)}[place]
    out.view(-1)[start : start + len(row)] = torch.tensor(row, dtype=torch.float64).to(out)
    return out


def _takes_all(tensor: object, row: Sequence[float]) -> bool:
    return all(_takes(tensor, value) for value in row)


def _words(row: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in row[:3]) + (", …" if len(row) > 3 else "")


def _filled(tensor: Any, value: float) -> object:
    return torch.full_like(tensor, value) if _takes(tensor, value) else tensor


def _multiples(tensor: Any, step: float) -> object:
    """Multiples of `step` in the tensor's dtype. They start below zero if the tensor has negative numbers."""
    if not _takes(tensor, 0.5) or not tensor.is_floating_point():
        return tensor
    low = -tensor.numel() // 2 if bool((tensor < 0).any()) else 0
    whole = (torch.arange(tensor.numel(), device=tensor.device) % 509) + max(low, -254)
    return (whole * step).to(tensor.dtype).reshape(tensor.shape)


_MOST_STEERED = 6  # comparisons
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
    for place, (number, other, equality) in enumerate(example.compared[:_MOST_STEERED]):
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
