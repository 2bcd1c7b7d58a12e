"""Puts values into the data that a forward compares it with, which random data never has.

    x == 7                 an input with a 7
    (x == 0).sum() == 3    an input with three zeros
    x // 0.7               exact multiples of 0.7
    ids == eos_token_id    an input with that id
    {(3, 5): 2.0}.get(tuple(ids.tolist()))      an input with that row

The values come from a recorded run of eager and from constants in the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from onnxpatch.verification.branch_recorder import Decisions
from onnxpatch.verification.data_changes import Variant

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
    return tensor.dtype != torch.bool and not tensor.is_complex() and value == int(value)


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
