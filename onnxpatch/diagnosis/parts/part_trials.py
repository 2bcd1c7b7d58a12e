"""Exports a model and its parts within a budget, and keeps each verdict: what every search for failing parts asks.

The whole model is exported as a part is too, in a wrapper that takes the tensors of the example and nothing else. That
tells whether only the arguments that were not given spoil the export, and bisects the lines of the root's forward.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from onnxpatch.decisions.place import Site
from onnxpatch.diagnosis.lines import line_bisect
from onnxpatch.diagnosis.lines.exporter_lines import operator_in
from onnxpatch.diagnosis.lines.line_bisect import first_words
from onnxpatch.diagnosis.part_export import attempt
from onnxpatch.diagnosis.parts.failing_part import FailingPart, part_subject
from onnxpatch.diagnosis.parts.isolated_module import Case, case_of
from onnxpatch.diagnosis.parts.module_calls import CallTree, Unit, record
from onnxpatch.diagnosis.trial import Subject, Trial
from onnxpatch.patching.registry import Registry
from onnxpatch.results.checks import AttemptResult
from onnxpatch.results.diagnosis import Diagnosis
from onnxpatch.settings import Exporter

Progress = Callable[[str, int, int], None]
_LEAST_SECONDS = 10.0  # that every export gets: a sound part of a model takes two or three


@dataclass
class PartTrials:
    """The exports of `root` and of its parts in one search. budget: seconds; diagnosis: filled in on the way.

    made: the attempts that `export` made on the whole model before.
    whole: the verdict on `root`. slow: parts that took too long. known: verdicts by `Case.key`.
    budget_spent: parts were left out because time was up.
    """

    root: Subject
    diagnosis: Diagnosis
    tolerance: float
    budget: float
    registry: Registry
    progress: Progress | None = None
    made: Sequence[AttemptResult] = ()
    whole: Trial = field(default_factory=Trial)
    tree: CallTree | None = None
    budget_spent: bool = False
    slow: list[FailingPart] = field(default_factory=list)
    known: dict[tuple[object, ...], tuple[Unit, list[FailingPart]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.deadline = time.perf_counter() + self.budget

    @property
    def exporter(self) -> Exporter:
        return self.diagnosis.exporter

    def left(self) -> float:
        """Seconds left of the budget."""
        return self.deadline - time.perf_counter()

    def attempt(
        self, subject: Subject, exporter: str, what: str = "", share: float = 1 / 2, quick: bool = False
    ) -> Trial:
        """Export a subject once. what: for progress. share: of the time left that this export gets."""
        if self.progress:
            self.progress(what, self.diagnosis.exports, 0)
        self.diagnosis.exports += 1
        seconds = max(self.left() * share, _LEAST_SECONDS)
        return attempt(subject, exporter, self.diagnosis.opset, self.tolerance, seconds, quick)

    def try_part(self, case: Case, parent: Trial, share: float = 1 / 2) -> tuple[Subject, Trial]:
        """Export a part alone, as it is inside its parent."""
        subject = part_subject(case, parent)
        trial = self.attempt(subject, self.exporter, case.unit.name, share, quick=True)
        refused = parent.status == trial.status == "refused"
        if self.exporter == "dynamo" and refused and other_reason(trial, parent, self.exporter):
            # Inside its parent its sizes may depend on each other. Alone they do not, and that may be all that is
            # refused: try again with sizes that torch.export may fix.
            loose = part_subject(case, parent, loose=True)
            again = self.attempt(loose, self.exporter, case.unit.name, share, quick=True)
            same = again.status == "refused" and not other_reason(again, parent, self.exporter)
            if again.status == "right" or same:
                return loose, again
            trial.fails_loose = again.fails and again.status != "slow"
        return subject, trial

    def fails_alike(self, trial: Trial, suspected: bool = False) -> bool:
        """Whether a part fails by itself as the whole model fails."""
        return fails_alike(trial, self.whole, self.exporter, suspected)

    def share_verdict(self, child: Unit, case: Case) -> list[FailingPart]:
        """The failing parts of an equal part that was tried before; the names of this one's are added to them."""
        first, parts = self.known[case.key]
        for part in parts:
            name = child.name + part.unit.name[len(first.name) :]
            if part.unit.name.startswith(first.name) and name not in (part.unit.name, *part.also):
                part.also.append(name)
        return parts


def other_reason(trial: Trial, parent: Trial, exporter: str) -> bool:
    """Whether two refusals are about different operators, or, where they name none, in different words."""
    if "silent" in (trial.status, parent.status):
        return False
    operators = [operator_in(one).partition(".")[0] for one in (trial, parent)]
    # Words say nothing where a part fails with any sizes, nor with torch.jit.script, which compiles a class only once.
    compare_words = not operators[0] and exporter != "script" and not trial.fails_loose
    other_words = compare_words and first_words(trial.error) != first_words(parent.error)
    return operators[0] != operators[1] or other_words


def fails_alike(trial: Trial, whole: Trial, exporter: str, suspected: bool = False) -> bool:
    """Whether a part fails by itself as the whole model fails.

    Any failure counts where the whole export did not end; also of a `suspected` part, where the whole model's refusal
    names neither a line nor an operator.
    """
    if whole.status == "slow" or (suspected and not (whole.places or operator_in(whole))):
        return trial.status in ("silent", "refused")
    return trial.status == whole.status and not other_reason(trial, whole, exporter)


def explained(trial: Trial, parts: Iterable[FailingPart], exporter: str) -> bool:
    """Whether failing parts explain a failure: of a refusal, one refused for the same reason; else any part."""
    if trial.status != "refused":
        return any(True for _ in parts)
    return any(one.trial.status == "refused" and not other_reason(one.trial, trial, exporter) for one in parts)


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
