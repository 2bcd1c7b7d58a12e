"""A part of a failing model: how it is exported alone, and what is kept of one that fails."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch.export import Dim

from onnxpatch.diagnosis.parts.isolated_module import Case
from onnxpatch.diagnosis.parts.module_calls import CallTree, Unit
from onnxpatch.diagnosis.trials.trial import Subject, Trial


@dataclass
class FailingPart:
    """A part that fails by itself while nothing that it calls does.

    also: names of other parts of the same class, configuration and shapes. wrapped_is_right: it exports right when its
    optional arguments are left out of the graph.
    """

    unit: Unit
    subject: Subject
    trial: Trial
    also: list[str] = field(default_factory=list)
    wrapped_is_right: bool = False


def part_subject(case: Case, parent: Trial, loose: bool = False) -> Subject:
    """The subject for exporting a part alone, under the conditions it has inside its parent.

    loose: let torch.export fix the part's sizes, also where its parent was refused.
    """
    # A size that is an expression in the parent (height * width) may be fixed there without an error. Alone it is a
    # size of its own, and Dim.DYNAMIC would refuse what the parent accepts; Dim.AUTO fixes it as silently.
    may_fix = loose or parent.status in ("silent", "slow")
    specs = [{axis: Dim.AUTO if may_fix else spec for axis, spec in one.items()} for one in case.specs]
    # Where the parent is wrong, eager's own unsteadiness in the part is what makes it wrong: no excuse there.
    return Subject(case.model, case.inputs, specs, case.probes, strict=parent.wrong_at())


def plain_layer(unit: Unit, tree: CallTree) -> bool:
    """Whether a unit is one of torch's own layers that calls no other module."""
    return type(unit.module).__module__.startswith("torch.nn.modules") and not tree.children(unit)
