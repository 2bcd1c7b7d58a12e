"""Flattens eager's output as the graph returns it, so that both can be compared: optional outputs as value and flag."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from onnxpatch.onnxfile.output_structure import Path, at


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
        value = at(output, slot.where)
        tensor = None if value is None else torch.as_tensor(value).to(slot.dtype)
        flat.append(tensor)
        if slot.optional:
            flat.append(torch.tensor((tensor is not None) is slot.present))
    return flat
