"""Exports the whole model as a part is exported: in a wrapper that takes the tensors of the example and nothing else.

It tells whether only the arguments that were not given spoil the export, and bisects the lines of the root's forward.
"""

from __future__ import annotations

import inspect

from onnxpatch.decisions.place import Site
from onnxpatch.diagnosis.lines import line_bisect
from onnxpatch.diagnosis.parts.failing_part import FailingPart, part_subject
from onnxpatch.diagnosis.parts.isolated_module import case_of
from onnxpatch.diagnosis.parts.module_calls import Unit, record
from onnxpatch.diagnosis.parts.part_trials import PartTrials
from onnxpatch.diagnosis.trials.trial import Subject


def leaves_defaults(search: PartTrials) -> bool:
    """Whether forward has arguments that were not given: the TorchScript exporter makes graph inputs of them."""
    given = search.root.inputs.graph_leaves(search.exporter)
    return len(given) < len(inspect.signature(search.root.model.forward).parameters)


def right_when_wrapped(search: PartTrials) -> bool:
    """Whether the model exports right when the graph's inputs are the given arguments only."""
    subject = _wrapped(search) if search.exporter != "script" and search.left() > 0 else None
    if subject is None:
        return False
    return search.attempt(subject, search.exporter, "the model, given its arguments only").status == "right"


def breaking_line(search: PartTrials, part: FailingPart) -> list[Site]:
    """The first line with which a part does not export, alone; found by exports of its first lines."""
    subject = _wrapped(search) if part.subject is search.root else part.subject
    if subject is None or search.left() <= 0:
        return []
    what = f"the first lines of {part.unit.name}"
    return line_bisect.breaking_line(
        part.unit, subject, part.trial, lambda s: search.attempt(s, search.exporter, what), search.left
    )


def _wrapped(search: PartTrials) -> Subject | None:
    """The whole model exported as a part is; None where it takes or returns no tensor."""
    # As any other part: only arguments that the call gives are inputs of its graph.
    root = Unit("", search.root.model)
    calls = record(search.root.model, search.root.inputs, search.root.probes, [root])[root.key]
    case = case_of(root, calls, search.root.probes, 0)
    return part_subject(case, search.whole) if case is not None else None
