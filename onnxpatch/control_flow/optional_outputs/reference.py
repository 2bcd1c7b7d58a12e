"""Outputs that a model leaves out on some data: in the graph a value and a flag; here the same from eager's output."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

Path = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class OutputSlot:
    """One tensor of the root's merged output. where: keys, indices and field names from the top; optional: some path
    has None there, so the graph gives a value and a flag (`present`: its value for "there"); dtype: the graph's."""

    where: Path
    optional: bool
    dtype: torch.dtype
    present: bool = True


def flatten_reference(output: Any, slots: Sequence[OutputSlot]) -> list[torch.Tensor | None]:
    """Eager's output as the graph gives it. None stands for the value beside a flag that says absent: it means
    nothing, whatever the graph puts there."""
    flat: list[torch.Tensor | None] = []
    for slot in slots:
        value = _at(output, slot.where)
        tensor = None if value is None else torch.as_tensor(value).to(slot.dtype)
        flat.append(tensor)
        if slot.optional:
            flat.append(torch.tensor((tensor is not None) is slot.present))
    return flat


def _at(output: Any, where: Path) -> Any:
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
