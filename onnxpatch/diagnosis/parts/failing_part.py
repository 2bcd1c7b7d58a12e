"""A part of a failing model as it is tried alone, and what is kept of one that fails."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch.export import Dim

from onnxpatch.diagnosis.parts.isolated_module import Case
from onnxpatch.diagnosis.parts.module_calls import Tree, Unit
from onnxpatch.diagnosis.trials.attempt import Subject, Trial


@dataclass
class FailingPart:
    """A part that fails while nothing that it calls does. also: other parts that are the same."""

    unit: Unit
    subject: Subject
    trial: Trial
    also: list[str] = field(default_factory=list)
    wrapped_is_right: bool = False


def as_part(case: Case, parent: Trial, loose: bool = False) -> Subject:
    """Where the parent is wrong, a part that eager itself is unsteady in is what makes it so.

    A size that is an expression in the parent (height * width) is fixed there without a word; alone it is a size of its
    own, and only Dim.AUTO lets it be fixed, or made such an expression, as quietly. loose: so it is in any case.
    """
    quiet = loose or parent.status in ("silent", "slow")
    specs = [{axis: Dim.AUTO if quiet else spec for axis, spec in one.items()} for one in case.specs]
    return Subject(case.model, case.inputs, specs, case.probes, strict=parent.wrong_at())


def plain_layer(unit: Unit, tree: Tree) -> bool:
    """A layer of torch's own that calls no other."""
    return type(unit.module).__module__.startswith("torch.nn.modules") and not tree.children(unit)
