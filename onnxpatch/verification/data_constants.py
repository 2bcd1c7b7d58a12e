"""Makes inputs with the exact values that a forward compares its data with.

Random data never makes these true, so a graph that froze the other side passes every random probe:

    x == 7                 an input with a 7
    (x == 0).sum() == 3    an input with three zeros
    torch.equal(a, b)      two equal inputs
    ids == eos_token_id    an input with that id

The values come from a recorded run of eager and from constants in the code.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

_MOST = 6  # values of one kind
_SEQUENCES = 3
_MOST_PLANTED = 4096
_LONGEST = 1 << 20  # elements of an input that gets such values
_WIDEST = 1024  # elements of a row of a tensor that is the model's own
Variant = tuple[str, list[Any]]


@dataclass
class DataConstants:
    """The values that a run of eager compared its data with, each once and in order.

    values: what elements are compared with, or the next values above and below. equals: by what a number computed from
    the data is compared with (==), that number. steps: divisors of floor divisions of elements. sequences: rows of the
    model's own tensors that data is compared with, or that are subtracted from it. sameness: two tensors are compared
    with each other.
    """

    values: dict[float, None] = field(default_factory=dict)
    equals: dict[float, float] = field(default_factory=dict)
    steps: dict[float, None] = field(default_factory=dict)
    sequences: dict[tuple[float, ...], None] = field(default_factory=dict)
    sameness: bool = False

    def compared(self, left: object, right: object, equality: bool) -> None:
        """Record a comparison of tensors, or of a tensor with a number."""
        numbers = [number_of(side) for side in (left, right)]
        if numbers[0] is None and numbers[1] is None:
            self.sameness |= equality
            return
        for side, number in zip((right, left), numbers, strict=True):
            if number is not None and isinstance(side, torch.Tensor) and math.isfinite(number):
                found = (number,) if equality else (number + 1, number - 1)
                self.values |= dict.fromkeys(value for value in found if value not in self.values)

    def met(self, own: torch.Tensor, among: bool = False) -> None:
        """Record that data meets a tensor of the model. among: it is looked for among the elements."""
        known = own.detach().reshape(-1) if among else own.detach().reshape(-1, own.shape[-1])[0]
        if own.is_complex() or not 0 < known.numel() <= _WIDEST or not bool(torch.isfinite(known).all()):
            return
        row = tuple(float(one) for one in known.tolist())
        if among or len(row) == 1:
            self.values |= dict.fromkeys(value for value in row[:_MOST] if value not in self.values)
        elif len(self.sequences) < _SEQUENCES:
            self.sequences.setdefault(row)

    def divided(self, left: object, right: object) -> None:
        """Record a floor division of floats by a step whose multiples are not exact in binary, such as 0.7."""
        step = number_of(right)
        # A mantissa of 0.5 means a power of two, whose multiples are exact.
        if step and isinstance(left, torch.Tensor) and left.is_floating_point() and math.frexp(step)[0] != 0.5:
            self.steps.setdefault(step)

    def flips(self, values: Sequence[object], more: Sequence[float] = ()) -> Iterator[Variant]:
        """Inputs that may flip such a comparison, likely ones first. more: constants of the code."""
        if self.sameness:
            yield from _same(values)
        yield from _paired(values, [one for one in self.values if one][:2])
        for row in self.sequences:
            yield from with_rows(row, values)
        known = list(self.values)[:_MOST]
        # Such as the 3 of `(x == 0).sum() == 3`: a number of elements.
        counts = [int(n) for n in self.equals if n == int(n) and 1 < n < 64][:2]
        for value in dict.fromkeys([*known, *list(self.equals)[:_MOST], *more[:_MOST]]):
            yield from with_number(value, values, counts if value in known else ())
        for low, high in itertools.islice(itertools.pairwise(sorted(known)), _MOST):
            yield f"elements between {low:g} and {high:g}", [_between(v, low, high) for v in values]
        for one, two in itertools.islice(itertools.combinations(known, 2), _MOST):
            yield f"{one:g} and {two:g} among them", planted(planted(values, one, (0,)), two, (-1,))
            yield f"{one:g} and {two:g} side by side", planted(planted(values, one, (0,)), two, (1,))
        yield from self._totals(values)

    def _totals(self, values: Sequence[object]) -> Iterator[Variant]:
        """Inputs at which a number computed from them may become one that it was compared with."""
        for total, number in list(self.equals.items())[:_MOST]:
            if number and total and math.isfinite(total / number):
                yield f"scaled to {total:g}", [scaled(v, total / number) for v in values]
            yield f"elements that sum up to {total:g}", [filled(v, total, share=True) for v in values]
            yield f"{total:g} ones", [_ones(v, total) for v in values]

    def beyond(self, known: DataConstants, values: Sequence[object]) -> Iterator[Variant]:
        """As `flips`, for constants that `known` lacks: those of the second half of `a and b`."""
        for value in [one for one in self.values if one not in known.values][:2]:
            yield f"one element {value:g}", planted(values, value, (-1,))
            yield f"the first element {value:g}", planted(values, value, (0,))

    def multiples(self, values: Sequence[object]) -> Iterator[Variant]:
        """Inputs at exact multiples of the recorded steps."""
        for step in list(self.steps)[:2]:
            yield f"multiples of {step:g}", [_multiples(v, step) for v in values]


def number_of(side: object) -> float | None:
    """A number, or a tensor of one element, as a float; None for others."""
    if isinstance(side, torch.Tensor):
        try:
            return float(side.item()) if side.numel() == 1 and not side.is_complex() else None
        except RuntimeError:  # torch.vmap: it stands for the elements of all rows
            return None
    return float(side) if isinstance(side, int | float) else None


def _same(values: Sequence[object]) -> Iterator[Variant]:
    tensors = [(i, v) for i, v in enumerate(values) if isinstance(v, torch.Tensor)]
    for (i, a), (j, b) in itertools.combinations(tensors, 2):
        if a.shape == b.shape and a.dtype == b.dtype:
            yield f"input {j} equal to input {i}", [a.clone() if k == j else v for k, v in enumerate(values)]


def _paired(values: Sequence[object], constants: Sequence[float]) -> Iterator[Variant]:
    """Two inputs whose sum or difference is a constant everywhere."""
    tensors = [(i, v) for i, v in enumerate(values) if isinstance(v, torch.Tensor)]
    for (i, a), (j, b) in itertools.islice(itertools.combinations(tensors, 2), _SEQUENCES):
        for value in constants if a.shape == b.shape and a.dtype == b.dtype else ():
            if _takes(a, value):
                value = value if a.is_floating_point() else int(value)  # whole numbers stay whole numbers
                yield (
                    f"input {j} and input {i} add up to {value:g}",
                    [value - a if k == j else v for k, v in enumerate(values)],
                )
                yield f"input {j} {value:g} above input {i}", [a + value if k == j else v for k, v in enumerate(values)]


def with_number(value: float, values: Sequence[object], counts: Sequence[int] = ()) -> Iterator[Variant]:
    """The values with a number at one element, at some, at all. counts: at how many."""
    yield f"one element {value:g}", planted(values, value, (-2,))
    yield f"the first element {value:g}", planted(values, value, (0,))
    yield f"the last element {value:g}", planted(values, value, (-1,))
    for count in counts:
        yield f"{count} elements {value:g}", planted(values, value, range(count))
    for where, place in (("first", 0), ("last", -1)):
        yield f"the {where} of each row {value:g}", [_in_rows(v, value, place) for v in values]
    yield f"all elements {value:g}", [filled(v, value) for v in values]
    for first, name in enumerate(("first", "second")):
        yield f"every other element {value:g}, from the {name}", planted(values, value, range(first, _MOST_PLANTED, 2))


def _takes(tensor: object, value: float) -> bool:
    if not isinstance(tensor, torch.Tensor) or not 0 < tensor.numel() <= _LONGEST:
        return False
    if tensor.is_floating_point():
        return True
    return tensor.dtype != torch.bool and not tensor.is_complex() and value == int(value)


def planted(values: Sequence[Any], value: float, places: Sequence[int]) -> list[object]:
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


def with_rows(row: Sequence[float], values: Sequence[object]) -> Iterator[Variant]:
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


def filled(tensor: Any, value: float, share: bool = False) -> object:
    """The number at all elements. share: shared by them."""
    value = value / tensor.numel() if share and _takes(tensor, 0) else value
    return torch.full_like(tensor, value) if _takes(tensor, value) else tensor


def scaled(tensor: Any, factor: float) -> object:
    """The tensor times a factor, rounded if it has ints."""
    if not _takes(tensor, 0):
        return tensor
    return tensor * factor if tensor.is_floating_point() else (tensor * factor).round().to(tensor.dtype)


def _between(tensor: Any, low: float, high: float) -> object:
    """Rising numbers inside the bounds."""
    if not _takes(tensor, 0.5):
        return tensor
    share = torch.linspace(0.2, 0.8, tensor.numel(), dtype=torch.float64, device=tensor.device)
    return (low + (high - low) * share).to(tensor.dtype).reshape(tensor.shape)


def _ones(tensor: Any, count: float) -> object:
    """A tensor of zeros and ones with `count` ones."""
    if not _takes(tensor, 0) or not bool(((tensor == 0) | (tensor == 1)).all()) or not 0 <= count <= tensor.numel():
        return tensor
    return (torch.arange(tensor.numel(), device=tensor.device) < count).to(tensor.dtype).reshape(tensor.shape)


def _multiples(tensor: Any, step: float) -> object:
    """Multiples of `step` in the tensor's dtype. They start below zero if the tensor has negative numbers."""
    if not _takes(tensor, 0.5) or not tensor.is_floating_point():
        return tensor
    low = -tensor.numel() // 2 if bool((tensor < 0).any()) else 0
    whole = (torch.arange(tensor.numel(), device=tensor.device) % 509) + max(low, -254)
    return (whole * step).to(tensor.dtype).reshape(tensor.shape)
