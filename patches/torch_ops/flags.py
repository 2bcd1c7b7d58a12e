"""Bools that are filled or chosen, and True or False in place of a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.symbolic import function_name


def _filled(mask: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """A mask of places, with those beyond a length and those of large values taken out or put in."""
    kept = mask.masked_fill(x > 1, False)
    return kept, torch.masked_fill(mask, x[:, :1] < 0, True)


@op(
    "masked_fill",
    name="bools-filled",
    why="We don't have an op for aten::masked_fill but it isn't a special case; "
    "Could not find an implementation for Where(16) node",
    reason="aten::masked_fill|Where",
    link="https://github.com/pytorch/pytorch/issues/82762",
    tries=lambda: [(torch.rand(b, n) > 0.5, torch.randn(b, n)) for b, n in ((2, 5), (3, 9), (1, 1))],
    case=_filled,
    unchanged=lambda mask, x: x.masked_fill(mask, 0.0),
)
def bools_filled(input: Tensor, mask: Tensor, value: object) -> Tensor:
    """Fills bools by `input | mask` for True, and by `input & ~mask` for False."""
    if input.dtype != torch.bool or isinstance(value, Tensor):
        return NotImplemented
    # onnxruntime has And, Or and Not of bools, and no Where.
    return input | mask if value else input & ~mask


def _flags(mask: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    first = x.argmax(1, keepdim=True)
    filled = mask.scatter(1, first, True), torch.full_like(x, True), x.masked_fill(mask, True), x.new_full((2,), False)
    computed = (x + True).clamp(max=True), x**True, True * x, torch.zeros_like(mask).fill_(True)
    return *filled, *computed, mask == True, mask != False, mask.index_fill(1, first[:1, 0], False)  # noqa: E712


@op(
    "where",
    name="bools-chosen",
    why="Could not find an implementation for Where(16) node: onnxruntime has And, Or and Not of bools",
    reason="Where|aten::where",
    tries=lambda b, n: (torch.rand(b, n) > 0.5, torch.randn(b, n)),
    case=lambda mask, x: (torch.where(x > 0, mask, x < 1), torch.where(mask, True, x > 0), mask.where(x > 0, False)),
    unchanged=lambda mask, x: torch.where(mask, x, 0.0),
)
def bools_chosen(original: object, *args: Any, **kwargs: Any) -> Tensor:
    """One side by And, the other by And with Not. The method has the condition second."""
    names = ("input",) if "condition" in kwargs else ("condition", "input", "other")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    sides = [given.get(name) for name in ("input", "other")]
    if not all(isinstance(side, bool) or (isinstance(side, Tensor) and side.dtype == torch.bool) for side in sides):
        return NotImplemented
    yes, no = (torch.tensor(side) if isinstance(side, bool) else side for side in sides)
    return given["condition"] & yes | ~given["condition"] & no


@op(
    "where",
    name="bytes-as-conditions",
    why="expected predicate to be bool, got torch.uint8",
    reason="expected predicate to be bool",
    exporters=("dynamo",),
    tries=lambda b, n: ((torch.rand(b, n) > 0.5).byte(), torch.randn(b, n)),
    case=lambda mask, x: (torch.where(mask, x, -x), x.where(mask, x * 2)),
    unchanged=lambda mask, x: torch.where(x > 0, x, 0.0),
)
def where_of_bytes(original: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """With the condition as bools. The method has it second."""
    at = int(original is Tensor.where)
    condition: Any = kwargs["condition"] if "condition" in kwargs else args[at]
    if condition.dtype != torch.uint8:
        return NotImplemented
    flags = condition.to(torch.bool)
    if "condition" in kwargs:
        return original(*args, **(kwargs | {"condition": flags}))
    return original(*args[:at], flags, *args[at + 1 :], **kwargs)


_FILLED = frozenset(("scatter", "index_fill", "fill", "masked_fill", "full_like", "new_full"))
_COMPUTED = frozenset(("add", "clamp", "clip", "mul", "pow"))
_VALUES = ("other", "value", "src", "fill_value", "min", "max", "exponent")


@op(
    "eq", "ne", "__eq__", "__ne__", "__add__", "__radd__", "__mul__", "__rmul__", "__pow__", "fill_",
    *sorted(_FILLED | _COMPUTED),
    name="flags-as-numbers",
    why="We don't have an op for aten::eq but it isn't a special case: a flag in place of a number",
    reason="We don't have an op",
    exporters=("trace",),
    tries=lambda b, n: (torch.rand(b, n) > 0.5, torch.randn(b, n)),
    case=_flags,
    unchanged=lambda mask, x: mask == (x > 0),
)  # fmt: skip
def flags_as_numbers(original: Callable[..., Tensor], input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """A tensor in place of True and False, or 1 and 0 to fill with."""

    def number(value: object) -> object:
        return (int(value) if fill else torch.tensor(value)) if isinstance(value, bool) else value

    name = function_name(original).strip("_").removeprefix("r")
    # With bools, a flag is no number: True + True is True.
    fill = name in _FILLED or (name in _COMPUTED and getattr(input, "dtype", None) != torch.bool)
    given = [*map(number, args)], kwargs | {name: number(kwargs[name]) for name in _VALUES if name in kwargs}
    same = all(a is b for a, b in zip((*args, *kwargs.values()), (*given[0], *given[1].values()), strict=True))
    return NotImplemented if same else original(input, *given[0], **given[1])
