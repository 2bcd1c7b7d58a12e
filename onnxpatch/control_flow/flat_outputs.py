"""Flattens the root's merged output into the tensors of the graph: each optional one a value and a flag, side by side.

    {"y": a, "mask": (m or None)}    tensors  a, m (or its sentinel), flag
                                     layout   {"kind": "dict", "items": {"y": {"kind": "tensor"}, ...}}

Exporters return flat tensors. The layout is written into the file, from which the original structure can be rebuilt.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence

import torch

from onnxpatch.control_flow.branch_report import BranchReport
from onnxpatch.control_flow.capture import Capture
from onnxpatch.control_flow.merging.output_template import Container, Slot, Structure, Template
from onnxpatch.control_flow.merging.select import MergedValue
from onnxpatch.control_flow.optional_outputs import OutputSlot
from onnxpatch.control_flow.pytrees import tensors
from onnxpatch.onnxfile import output_structure
from onnxpatch.onnxfile.editing import edited
from onnxpatch.onnxfile.output_structure import Path
from onnxpatch.onnxfile.tree import Tree


def flattened(
    capture: Capture, template: Template, merged: list[MergedValue]
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """The tensors of the merged output, in order; one alone is not in a tuple. The report gets layout and outputs."""
    flattening = _Flattening(capture, template, merged)
    capture.report.layout, capture.report.outputs = None, []
    capture.report.layout = flattening.tree(template.structure, ())
    flat = flattening.flat
    return flat[0] if len(flat) == 1 else tuple(flat)


def flattened_without_branches(capture: Capture, value: object) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """The same for an output that does not depend on any branch."""
    template = Template([value], of_root=True)
    values = tensors([slot.values[0] for slot in template.slots])  # with one path, every slot has a tensor
    return flattened(capture, template, [MergedValue(value, None) for value in values])


def always_missing(capture: Capture) -> tuple[torch.Tensor, torch.Tensor]:
    """The sentinel and the flag of a declared output that is None on every path."""
    assert capture.outputs.missing is not None
    mark, like = capture.outputs.missing
    if like is None:
        raise capture.refusal(
            None,
            "every path returns None: nothing says what shape the missing output has in the graph",
            remedy="name an argument of the same shape: @optional_output(like='...')",
        )
    present = mark.flag == "present"
    capture.report.outputs = [OutputSlot((), True, like.dtype, present)]
    capture.report.layout = {"kind": "tensor", "hint": "output", "form": mark.form, "present": present}
    return torch.full_like(like, mark.fill), torch.full((), not present)


class _Flattening:
    """Walks a structure: collects the tensors in `flat`, and returns the tree that describes them."""

    def __init__(self, capture: Capture, template: Template, merged: list[MergedValue]) -> None:
        self._capture, self._report = capture, capture.report
        self._merged = {id(slot): one for slot, one in zip(template.slots, merged, strict=True)}
        self.flat: list[torch.Tensor] = []

    def tree(self, part: Structure, where: Path, labels: Path = ()) -> Tree:
        if isinstance(part, Slot):
            return self._leaf(part, self._merged[id(part)], where, labels)
        if not isinstance(part, Container):
            return output_structure.constant(part)
        below = {
            key: self.tree(inner, (*where, key), (*labels, output_structure.label(part.like, key)))
            for key, inner in part.parts.items()
        }
        return output_structure.container(part.like, below)

    def _leaf(self, slot: Slot, merged: MergedValue, where: Path, labels: Path) -> Tree:
        mark = self._capture.outputs.mark(slot.present)
        ignored = mark is not None and mark.flag == "ignored"
        self._report.outputs.append(OutputSlot(where, slot.optional, slot.dtype, not ignored))
        _note_dtypes(self._report, slot, where)
        assert isinstance(merged.value, torch.Tensor)  # at the root a sentinel has replaced what is absent
        self.flat.append(merged.value)
        tree: Tree = {"kind": "tensor", "hint": output_structure.name_hint(labels)}
        if not slot.optional:
            return tree
        flag = merged.flag if isinstance(merged.flag, torch.Tensor) else torch.full((), bool(merged.flag))
        self.flat.append(~flag if ignored else flag)
        if mark is not None and mark.form == "onnx":
            tree["form"] = "onnx"
        return {**tree, "present": not ignored}


def _note_dtypes(report: BranchReport, slot: Slot, where: Path) -> None:
    if slot.mixed:
        report.notes.append(f"output{where}: the branches return several dtypes, the graph {slot.dtype}")


def name_outputs(file: str | os.PathLike[str], report: BranchReport, names: Sequence[str] | None = None) -> None:
    """Name a file's outputs, optional ones followed by their flag, and write the structure into its metadata.

    report: `control_flow.report_of(model)` after the export; without a structure the file is left as it is.
    names: the user's names, one for each output value, or one for each value and flag; shorter lists are allowed.
    Raises ValueError where the graph and the structure have different numbers of outputs.
    """
    if report.layout is not None:
        with edited(file) as proto:
            # `write` puts names into the tree that it is given; the report's must stay as it is for another export.
            output_structure.write(proto, copy.deepcopy(report.layout), names or ())
