"""The root's output as a graph has it: each optional leaf a value and a flag, in place; other containers unrolled."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from onnxpatch.control_flow.capture import Capture
from onnxpatch.control_flow.merging.merge import Item
from onnxpatch.control_flow.merging.output_template import Built, Path, Slot, Template
from onnxpatch.control_flow.optional_outputs.reference import OutputSlot
from onnxpatch.onnxfile.output_structure import Tree


def finished(capture: Capture, template: Template, items: list[Item]) -> Any:
    """The tensors of the merged output in order, which every exporter takes; its structure goes into the report."""
    found = {id(slot): (slot, item) for slot, item in zip(template.slots, items, strict=True)}
    report = capture.report
    report.layout, report.outputs = None, []
    flat: list[torch.Tensor] = []
    report.layout = _walk(capture, template.structure, found, (), flat)
    return flat[0] if len(flat) == 1 else tuple(flat)


def plain(capture: Capture, value: Any) -> Any:
    """The same for an output that does not depend on any branch."""
    template = Template([value], liberal=True)
    return finished(capture, template, [Item(slot.values[0], _always(slot)) for slot in template.slots])


def _always(slot: Slot) -> Any:
    return True if slot.optional else None


def _walk(
    capture: Capture, part: Any, found: dict[int, tuple[Slot, Item]], where: Path, flat: list[torch.Tensor]
) -> Tree:
    if isinstance(part, Slot):
        return _leaf(capture, *found[id(part)], where, flat)
    if not isinstance(part, Built):
        return {"kind": "constant", "value": part if isinstance(part, _PLAIN) else repr(part)}
    trees = {name: _walk(capture, inner, found, (*where, name), flat) for name, inner in part.parts.items()}
    return _container(part.like, trees)


_PLAIN = (bool, int, float, str, type(None))


def _container(like: Any, trees: dict[Any, Tree]) -> Tree:
    name = f"{type(like).__module__}:{type(like).__qualname__}"
    if dataclasses.is_dataclass(like):
        return _tree("dataclass", trees, name)
    if isinstance(like, dict):
        return _tree("dict", trees, None)
    if hasattr(like, "_fields"):
        fields: Any = like._fields
        return _tree("namedtuple", dict(zip(fields, trees.values(), strict=True)), name)
    return {"kind": "tuple" if isinstance(like, tuple) else "list", "items": list(trees.values())}


def _tree(kind: str, trees: dict[Any, Tree], name: str | None) -> Tree:
    found: Tree = {"kind": kind, "items": {str(key): tree for key, tree in trees.items()}}
    if kind == "dict" and not all(isinstance(key, str) for key in trees):
        found["keys"] = [key if isinstance(key, _PLAIN) else str(key) for key in trees]
    return found if name is None else {**found, "class": name}


def _leaf(capture: Capture, slot: Slot, item: Item, where: Path, flat: list[torch.Tensor]) -> Tree:
    declared = capture.declared_for(slot.present)
    ignored = declared is not None and declared.flag == "ignored"
    capture.report.outputs.append(OutputSlot(where, slot.optional, slot.dtype, not ignored))
    if slot.mixed:
        note = f"output{where}: the branches return several dtypes, the graph {slot.dtype}"
        capture.report.notes.append(note)
    flat.append(item.value)
    tree: Tree = {"kind": "tensor", "hint": _hint(where)}
    if not slot.optional:
        return tree
    flag = item.flag if isinstance(item.flag, torch.Tensor) else torch.full((), bool(item.flag))
    flat.append(~flag if ignored else flag)
    if declared is not None and declared.form == "onnx":
        tree["form"] = "onnx"
    return {**tree, "present": not ignored}


def _hint(where: Path) -> str:
    named = [str(part) for part in where if not isinstance(part, int)]
    numbers = [str(part) for part in where if isinstance(part, int)]
    return "_".join([*(named or ["output"]), *numbers])
