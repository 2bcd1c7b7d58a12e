"""Other data at the example's sizes: other signs and magnitudes, zeros, other masks and whole numbers.

x.sum() > 0                      x negated
softmax over a mask's row        the row masked whole
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from onnxpatch.verification.comparison import is_blank
from onnxpatch.verification.probe import measures

_FIRST = 4  # inputs that are changed alone
MAGNITUDES = (30.0, 0.001)
Change = Callable[[torch.Tensor], torch.Tensor]
Variant = tuple[str, list[Any]]
MASKED = "a row masked whole"


def variants(values: Sequence[object], finite: bool = True) -> Iterator[Variant]:
    """(label, leaves): the usual ones. finite: without NaN and infinity."""
    if any(map(is_float, values)):
        yield from _each(values, is_float, _SIGNS)
        yield from _each(values, is_float, {} if finite else NON_FINITE)
        floats = [i for i, v in enumerate(values) if is_float(v)]
        for i in floats[:_FIRST] if len(floats) > 1 else ():
            # Changing all inputs alike keeps relations between them: `a > b` does not change when both are scaled.
            for label in ("negated", "zeros"):
                changed = [_changed(v, is_float, _SIGNS[label]) if j == i else v for j, v in enumerate(values)]
                yield f"input {i} {label}", changed
    for takes, changes in ((is_whole, _WHOLE), (is_flags, _FLAGS), (lambda v: is_whole(v) and is_mask(v), _MASKS)):
        yield from _each(values, takes, changes) if any(map(takes, values)) else ()
    yield MASKED, [_last_row_off(v) for v in values]


def rescaled(values: Sequence[object], factor: float) -> Variant:
    """(label, leaves): the floats times `factor`. Masks stay, and whole numbers, which count something."""
    return f"times {factor:g}", [_changed(v, measures, lambda x: x * factor) for v in values]


def is_dull(values: Sequence[object], outputs: Sequence[torch.Tensor | None]) -> bool:
    """Whether outputs may be equal on another branch, too: all inputs are alike, or the outputs are blank."""
    floats = [v for v in values if isinstance(v, torch.Tensor) and v.is_floating_point() and v.numel()]
    return (bool(floats) and all(bool((v == v.reshape(-1)[0]).all()) for v in floats)) or is_blank(outputs)


# ------------------------------------------------------------------ kinds of values
def is_float(value: object) -> bool:
    """Whether a value is a tensor of floats."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def is_flags(value: object) -> bool:
    """Whether a value is a tensor of bools."""
    return isinstance(value, torch.Tensor) and value.dtype == torch.bool


def is_whole(value: object) -> bool:
    """Whether a value is a tensor of whole numbers."""
    if not isinstance(value, torch.Tensor) or value.dtype == torch.bool:
        return False
    return not value.is_floating_point() and not value.is_complex()


def is_mask(value: object) -> bool:
    """Whether a value is a mask: bools, or numbers that are all 0 or 1."""
    if not isinstance(value, torch.Tensor) or not value.numel() or value.is_complex():
        return False
    return value.dtype == torch.bool or bool(((value == 0) | (value == 1)).all())


def counts_or_marks(values: Sequence[object]) -> bool:
    """Whether a value counts something, or is a mask: other data may show more there than other numbers."""
    return any(is_mask(value) or is_whole(value) for value in values)


# ------------------------------------------------------------------ changes
def _each(
    values: Sequence[object], takes: Callable[[object], bool], changes: Mapping[str, Change]
) -> Iterator[Variant]:
    yield from ((label, [_changed(v, takes, change) for v in values]) for label, change in changes.items())


def _changed(value: Any, takes: Callable[[object], bool], change: Change) -> object:
    # `view` below takes no strides of an expanded or transposed tensor.
    return change(value.detach().contiguous()) if takes(value) else value


def _last_row_off(value: Any) -> object:
    """The mask with its last row masked whole: softmax and means over it are NaN in eager. If the mask marks what is
    left out, the whole row is marked."""
    if not is_mask(value) or not value.dim():
        return value
    return _last_row(value.detach(), 0 if value.double().mean() >= 0.5 else 1)


def _last_row(x: torch.Tensor, value: float) -> torch.Tensor:
    out = x.clone()
    (out[-1] if out.dim() > 1 else out).fill_(value)
    return out


def _plant(value: float) -> Change:
    def change(x: torch.Tensor) -> torch.Tensor:
        out = x.clone()
        out.view(-1)[out.numel() // 2 :][:1] = value
        return out

    return change


def _alternating(x: torch.Tensor) -> torch.Tensor:
    sign = 1 - 2 * (torch.arange(x.numel(), device=x.device) % 2)
    return x * sign.reshape(x.shape).to(x.dtype)


def _last_two_exchanged(x: torch.Tensor) -> torch.Tensor:
    # Of two, they are reversed already; a long axis counts something else.
    if not x.dim() or not 2 < x.shape[-1] <= 8:
        return x
    return torch.cat([x[..., :-2], x[..., -2:].flip(-1)], -1)


def _first_negated(x: torch.Tensor) -> torch.Tensor:
    out = x.clone()
    out.view(-1)[:1] *= -1
    return out


_SIGNS: dict[str, Change] = {
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
    "first element negated": _first_negated,
    "times 0.001": lambda x: x * 0.001,
    "times 1000": lambda x: x * 1000,
    "halves": lambda x: torch.full_like(x, 0.5),
}
NON_FINITE: dict[str, Change] = {
    "one NaN": _plant(float("nan")),
    "one infinity": _plant(float("inf")),
    "NaN alone": lambda x: torch.full_like(x, float("nan")),
    "one infinity below zero": _plant(float("-inf")),
    "a row of infinities below zero": lambda x: _last_row(x, float("-inf")),
}
_WHOLE: dict[str, Change] = {
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
_MASKS: dict[str, Change] = {"mask all set": torch.ones_like, "mask all off": torch.zeros_like}
_FLAGS: dict[str, Change] = {
    "flags flipped": lambda x: ~x,
    "flags all set": torch.ones_like,
    "no flag set": torch.zeros_like,
}
