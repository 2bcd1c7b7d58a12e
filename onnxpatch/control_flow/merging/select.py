"""Chooses one of two values that both exist in the graph, at run time: `Where`, and logic for bools and flags.

select(p, a, b)    value: Where(p, a.value, b.value)     flag ("is it there"): p & a.flag | ~p & b.flag
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, cast

import torch

from onnxpatch.control_flow.merging.output_template import Absent, Slot

Flag: TypeAlias = torch.Tensor | bool | None
"""Whether an optional value is there: known now, or a 0-d bool tensor; None for values that always are."""


@dataclass
class MergedValue:
    """What a slot of the output has at some node of the tree of paths."""

    value: torch.Tensor | Absent
    flag: Flag


def select(predicate: torch.Tensor, a: MergedValue, b: MergedValue, slot: Slot, fill: float = 0) -> MergedValue:
    """`a` where the predicate (0-d, bool) is true, else `b`; elements of `fill` where a value is absent."""
    return MergedValue(_value(predicate, a.value, b.value, slot, fill), _flag(predicate, a.flag, b.flag))


def _value(
    predicate: torch.Tensor, a: torch.Tensor | Absent, b: torch.Tensor | Absent, slot: Slot, fill: float
) -> torch.Tensor | Absent:
    # Both paths may have a tensor that was computed before they parted.
    if a is b:
        return a
    if slot.dtype is torch.bool:  # onnxruntime has no Where for bool
        sides = [value & p for value, p in ((a, predicate), (b, ~predicate)) if not isinstance(value, Absent)]
        return sides[0] if len(sides) == 1 else sides[0] | sides[1]
    sentinel = torch.full((), fill, dtype=slot.dtype)
    return torch.where(predicate, sentinel if isinstance(a, Absent) else a, sentinel if isinstance(b, Absent) else b)


def _flag(predicate: torch.Tensor, a: Flag, b: Flag) -> Flag:
    if a is b:
        return a
    # Flags known now cost no operation, or one.
    if isinstance(a, bool) and isinstance(b, bool):
        return predicate if a else ~predicate
    if isinstance(a, bool):
        other = cast(torch.Tensor, b)
        return predicate | other if a else ~predicate & other
    first = cast(torch.Tensor, a)
    if isinstance(b, bool):
        return ~predicate | first if b else predicate & first
    return (predicate & first) | (~predicate & cast(torch.Tensor, b))
