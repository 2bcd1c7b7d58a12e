"""Flattens eager's output as the graph returns it, so that both can be compared: optional outputs as value and flag."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from typing import TypeAlias

import torch

Path: TypeAlias = tuple[Hashable, ...]
"""Where a value is in a structure: keys, indices and field names from the top."""


@dataclasses.dataclass(frozen=True)
class OutputSlot:
    """One tensor of the root's merged output.

    optional: it is None on some path, so that the graph returns a value and a flag. dtype: that of the graph's output.
    present: the flag's value where the output is there.
    """

    where: Path
    optional: bool
    dtype: torch.dtype
    present: bool = True


def flatten_reference(output: object, slots: Sequence[OutputSlot]) -> list[torch.Tensor | None]:
    """Eager's output as the graph returns it: the values in order, each optional one followed by its flag.

    None stands for the value of a missing output, which may be anything in the graph.
    """
    flat: list[torch.Tensor | None] = []
    for slot in slots:
        value = _at(output, slot.where)
        tensor = None if value is None else torch.as_tensor(value).to(slot.dtype)
        flat.append(tensor)
        if slot.optional:
            flat.append(torch.tensor((tensor is not None) is slot.present))
    return flat


def _at(output: object, where: Path) -> object:
    """The value at a place; None where the output has no such place."""
    for part in where:
        if dataclasses.is_dataclass(output) and not isinstance(output, type):
            output = getattr(output, str(part), None)
        elif isinstance(output, dict):
            output = output.get(part)
        elif isinstance(output, tuple | list) and isinstance(part, int) and part < len(output):
            output = output[part]
        else:
            return None
    return output
