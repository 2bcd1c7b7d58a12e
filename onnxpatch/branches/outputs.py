"""The root's output as a graph has it: each optional leaf a value and a flag, in place; other containers unrolled."""

from __future__ import annotations

from typing import Any

from onnxpatch.branches.capture import Capture
from onnxpatch.branches.emit import Item
from onnxpatch.branches.template import Template, assembled
from onnxpatch.optional import OutputSlot


def flattened(capture: Capture, template: Template, items: list[Item]) -> Any:
    """The merged output; an optional leaf is the pair (value, flag)."""
    capture.report.outputs = [OutputSlot(slot.where, slot.optional, slot.dtype) for slot in template.slots]
    filled = {}
    for slot, item in zip(template.slots, items, strict=True):
        filled[id(slot)] = item.value if not slot.optional else (item.value, item.flag)
        if slot.mixed:
            note = f"output{slot.where}: the branches return several dtypes, the graph {slot.dtype}"
            capture.report.notes.append(note)
    return assembled(template.structure, filled)
