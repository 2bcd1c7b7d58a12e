"""Makes values for probes: like the example's, other ones, and those that may flip a branch of the forward."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from onnxpatch.verification.moved_values import Moves, follows, moved

Fill = Callable[[torch.Tensor, Sequence[int], torch.Generator, Moves], torch.Tensor]


def drawn(example: torch.Tensor, shape: Sequence[int], generator: torch.Generator, moves: Moves = ()) -> torch.Tensor:
    """Random values with the example's dtype, range and sign; ints if it has ints."""
    if example.numel() == 0:
        # An empty example has no values to draw from.
        return torch.zeros(tuple(shape), dtype=example.dtype, device=example.device)
    # On the CPU, whose generator gives the same numbers on every machine.
    flat = example.detach().reshape(-1).cpu()
    count = math.prod(shape)
    # From the example's own values: what is an index or a token id there stays a valid one.
    values = flat[torch.randint(0, flat.numel(), (count,), generator=generator)]
    if flat.is_floating_point():
        values = _varied(flat, values, generator)
    values = values.reshape(tuple(shape))
    # Bins and times are sorted: eager's answer is not defined for others.
    order = _order(example)
    return (values if order is None else values.sort(-1, descending=order < 0).values).to(example.device)


def _order(example: torch.Tensor) -> int | None:
    """1 where the values rise along the last axis, -1 where they fall; None for others, and for fewer than 5."""
    if example.dim() == 0 or example.shape[-1] < 5 or example.is_complex() or example.dtype == torch.bool:
        return None
    steps = example.detach()[..., 1:] >= example.detach()[..., :-1], example[..., 1:] <= example[..., :-1]
    rises, falls = (bool(step.all()) for step in steps)
    return None if rises == falls else 1 if rises else -1


def _varied(flat: torch.Tensor, values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Values in the example's range. Zeros or ones are a dummy example: any float will do. Ints may be ids: kept."""
    noise = torch.rand(values.shape, generator=generator).to(values.dtype)
    if flat.numel() > 1 and bool((flat == flat[0]).all()):
        return noise if float(flat[0]) in (0.0, 1.0) else values * (0.75 + noise / 2)
    if bool((flat == flat.round()).all()):
        return values
    known = flat[~flat.isnan()]
    # Not beyond the example's: an image in [0, 1] that leaves it may be refused.
    return (values * (0.95 + noise / 10)).clamp(*known.aminmax()) if known.numel() else values


def tiled(example: torch.Tensor, shape: Sequence[int], generator: torch.Generator, moves: Moves = ()) -> torch.Tensor:
    """The example, cut or repeated along each axis. Keeps order, one-hot rows, masks and positions."""
    out = example.detach()
    for axis, size in enumerate(shape):
        if out.shape[axis] != size and out.shape[axis]:
            out = out.index_select(axis, torch.arange(size, device=out.device) % out.shape[axis])
    return out.clone()


def fitted(example: torch.Tensor, shape: Sequence[int], generator: torch.Generator, moves: Moves = ()) -> torch.Tensor:
    """As `tiled`, with ints below the smallest new size: indices and lengths must fit a smaller tensor."""
    out = tiled(example, shape, generator)
    changed = [size for size, old in zip(shape, example.shape, strict=True) if size != old]
    if changed and not out.is_floating_point() and out.dtype != torch.bool:
        out = out.clamp(max=max(0, min(changed) - 1))
    return out


def following(
    example: torch.Tensor, shape: Sequence[int], generator: torch.Generator, moves: Moves = ()
) -> torch.Tensor:
    """Ints, bools and masks as `moved` makes them, so that lengths fit the new sizes; others as `drawn`."""
    if example.is_complex() or (example.is_floating_point() and bool((example != example.round()).any())):
        return drawn(example, shape, generator)
    return moved(example, shape, moves)


def fills(values: Sequence[torch.Tensor], moves: Moves) -> Sequence[Fill]:
    """Ways to fill the inputs at other sizes; those that eager will probably accept come first.

    Lengths and offsets of something that changes its size change with it.
    """
    if all(v.is_floating_point() and bool((v != v.round()).any()) for v in values):
        return (drawn,)  # no values that depend on a size
    if any(follows(value, moves) for value in values):
        return following, drawn, tiled, fitted
    return drawn, tiled, fitted, following


MAGNITUDES = (30.0, 0.001)


def scaled(values: Sequence[object], factor: float) -> tuple[str, list[Any]]:
    """(label, leaves): the floats times `factor`. Masks stay, and whole numbers, which count something."""
    return f"times {factor:g}", [_on_floats(v, lambda x: x * factor) if _measures(v) else v for v in values]


def _measures(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and bool((value != value.round()).any())


# ------------------------------------------------------------------ data that may flip a branch
def variants(
    values: Sequence[object], finite: bool = True, compared: Sequence[tuple[float, float]] = ()
) -> Iterator[tuple[str, list[Any]]]:
    """(label, leaves): the values with other signs and magnitudes, zeros, other ints and bools.

    finite: without NaN and infinity. compared: (number computed from the data, what the forward compares it with).
    """
    if any(isinstance(v, torch.Tensor) and v.is_floating_point() for v in values):
        yield from _of_floats(values, finite, compared)
    if any(isinstance(v, torch.Tensor) and not v.is_floating_point() and not v.is_complex() for v in values):
        for label, move in _INTS.items():
            yield label, [_on_ints(v, move) for v in values]
        for label, change in _FLAGS.items():
            yield label, [change(v) if isinstance(v, torch.Tensor) and v.dtype == torch.bool else v for v in values]
    yield MASKED, [_last_row_off(v) for v in values]


def _of_floats(
    values: Sequence[object], finite: bool, compared: Sequence[tuple[float, float]]
) -> Iterator[tuple[str, list[Any]]]:
    for factor in _factors(compared):
        yield f"times {factor:.3g}", [_on_floats(v, lambda x, f=factor: x * f) for v in values]  # type: ignore[misc]
    for share in _shares(compared):
        yield f"{share:.3g} of it positive", [_on_floats(v, lambda x, s=share: _signed(x, s)) for v in values]  # type: ignore[misc]
    for label, change in _FLOATS.items() if finite else {**_FLOATS, **NON_FINITE}.items():
        yield label, [_on_floats(v, change) for v in values]
    yield from _one_at_a_time(values)


MASKED = "a row masked whole"


def is_mask(value: object) -> bool:
    """Whether a value is a mask: bools, or numbers that are all 0 or 1."""
    if not isinstance(value, torch.Tensor) or not value.numel() or value.is_complex():
        return False
    return value.dtype == torch.bool or bool(((value == 0) | (value == 1)).all())


def _last_row_off(value: Any) -> object:
    """The mask with its last row masked whole: softmax and means over it are NaN in eager. If the mask marks what is
    left out, the whole row is marked."""
    if not is_mask(value) or not value.dim():
        return value
    out = value.detach().clone()
    mostly = out.double().mean() >= 0.5
    (out[-1] if out.dim() > 1 else out).fill_(0 if mostly else 1)
    return out


def _factors(compared: Sequence[tuple[float, float]], most: int = 6) -> list[float]:
    """Factors for the data with which a number computed from it passes the number that it is compared with."""
    known = [(a, b) for a, b in compared if a and b and math.isfinite(a) and math.isfinite(b)]
    # Twice as far as needed, or half, so that rounding does not decide which side it is.
    factors = dict.fromkeys(b / a * (2.0 if abs(a) <= abs(b) else 0.5) for a, b in known)
    return [f for f in factors if 1e-12 < abs(f) < 1e12][:most]


def _shares(compared: Sequence[tuple[float, float]], most: int = 3) -> list[float]:
    """Shares between those that are compared with: 0.1, 0.225 and 0.625 for 0.2 and 0.25."""
    bounds = [0.0, *sorted({other for _, other in compared if 0 < other < 1}), 1.0]
    return [(low + high) / 2 for low, high in itertools.pairwise(bounds)][:most] if len(bounds) > 2 else []


def _signed(x: torch.Tensor, share: float) -> torch.Tensor:
    """The magnitudes, with this share of them positive and the others negative."""
    positive = torch.arange(x.numel(), device=x.device) < round(share * x.numel())
    return torch.where(positive.reshape(x.shape), x.abs(), -x.abs())


def _plant(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(x: torch.Tensor) -> torch.Tensor:
        out = x.clone()
        if out.numel():
            out.view(-1)[out.numel() // 2] = value
        return out

    return change


def _alternating(x: torch.Tensor) -> torch.Tensor:
    sign = 1 - 2 * (torch.arange(x.numel(), device=x.device) % 2)
    return x * sign.reshape(x.shape).to(x.dtype)


_FLOATS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "negated": lambda x: -x,
    "alternating signs": _alternating,
    "zeros": torch.zeros_like,
    "times 10": lambda x: x * 10,
    "times 0.1": lambda x: x * 0.1,
    "times 100": lambda x: x * 100,
    "times -10": lambda x: x * -10,
    "times -100": lambda x: x * -100,
    "ones": torch.ones_like,
    "shifted by 3": lambda x: x + 3,
    "reversed": lambda x: x.flip(-1) if x.dim() else x,
    "rolled": lambda x: x.roll(1, -1) if x.dim() else x,
    "first element negated": lambda x: _first(x, -1),
    "times 0.001": lambda x: x * 0.001,
    "times 1000": lambda x: x * 1000,
    "halves": lambda x: torch.full_like(x, 0.5),
}
NON_FINITE = {
    "one NaN": _plant(float("nan")),
    "one infinity": _plant(float("inf")),
    "NaN alone": lambda x: torch.full_like(x, float("nan")),
    "one infinity below zero": _plant(float("-inf")),
    "a row of infinities below zero": lambda x: _last_row(x, float("-inf")),
}


def _last_row(x: torch.Tensor, value: float) -> torch.Tensor:
    out = x.clone()
    (out[-1] if out.dim() > 1 else out).fill_(value)
    return out


def _first(x: torch.Tensor, factor: float) -> torch.Tensor:
    out = x.clone()
    out.view(-1)[:1] *= factor
    return out


def _on_floats(value: object, change: Callable[[torch.Tensor], torch.Tensor]) -> object:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        # `view` below takes no strides of an expanded or transposed tensor.
        return change(value.detach().contiguous())
    return value


def _one_at_a_time(values: Sequence[object]) -> Iterator[tuple[str, list[Any]]]:
    floats = [i for i, v in enumerate(values) if isinstance(v, torch.Tensor) and v.is_floating_point()]
    for i in floats[:4] if len(floats) > 1 else ():
        # Changing all inputs alike keeps relations between them: `a > b` does not change when both are scaled.
        for label in ("negated", "zeros"):
            yield f"input {i} {label}", [_on_floats(v, _FLOATS[label]) if j == i else v for j, v in enumerate(values)]


def _last_two_exchanged(x: torch.Tensor) -> torch.Tensor:
    # Of two, they are reversed already; a long axis counts something else.
    if not x.dim() or not 2 < x.shape[-1] <= 8:
        return x
    return torch.cat([x[..., :-2], x[..., -2:].flip(-1)], -1)


_INTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "whole numbers + 1": lambda x: x + 1,
    "whole numbers doubled": lambda x: x * 2,
    "whole numbers - 1": lambda x: x - 1,
    "whole numbers zero": torch.zeros_like,
    "whole numbers reversed": lambda x: x.flip(-1) if x.dim() else x,
    # A height and a width behind a number of frames: as many places as before.
    "whole numbers exchanged": _last_two_exchanged,
    "whole numbers negated": lambda x: -x,
    "whole numbers below zero": lambda x: -x - 1,
}


_FLAGS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "flags flipped": lambda x: ~x,
    "flags all set": torch.ones_like,
    "no flag set": torch.zeros_like,
}


def _on_ints(value: Any, move: Callable[[torch.Tensor], torch.Tensor]) -> object:
    whole = isinstance(value, torch.Tensor) and not value.is_floating_point() and not value.is_complex()
    return move(value.detach()) if whole and value.dtype != torch.bool else value
