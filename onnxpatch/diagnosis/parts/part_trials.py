"""Exports single parts of a model for the doctor's searches, within a budget of seconds, and remembers each verdict.

A part (a submodule, or a method of one) is exported alone, in a wrapper that takes the tensors of its recorded calls.
So is the whole model. If it is right in that wrapper and wrong as it is, the arguments that the example leaves out are
the cause. For a part that fails, its wrapper and its recorded calls are kept: a patch's proof is made of them.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch.export import Dim

from onnxpatch.decisions.ask import Site
from onnxpatch.diagnosis.lines import execution_trace
from onnxpatch.diagnosis.lines.execution_trace import first_words
from onnxpatch.diagnosis.lines.exporter_lines import operator_in
from onnxpatch.diagnosis.part_export import attempt
from onnxpatch.diagnosis.parts.isolated_module import Case, IsolatedModule, case_of, record
from onnxpatch.diagnosis.parts.module_calls import CallTree, Unit
from onnxpatch.diagnosis.trial import Subject, Trial
from onnxpatch.messages.text import Progress
from onnxpatch.patching.registry import Registry
from onnxpatch.results.checks import AttemptResult
from onnxpatch.results.diagnosis import Diagnosis
from onnxpatch.settings import Exporter


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
    return type(unit.module).__module__.startswith("torch.nn.modules") and not tree.get(unit.key)


Args = tuple[object, ...]
_MOST_CALLS = 4  # the example and three other sizes or data say what a proof has to say


@dataclass(frozen=True)
class RecordedPart:
    """A module or one of its methods, and positional arguments that it was called with, the example first.

    calls: empty where they cannot be given by position. dynamic_shapes: the axes whose size differs between the calls.
    """

    path: str
    module: torch.nn.Module
    method: str
    calls: tuple[Args, ...]
    dynamic_shapes: tuple[dict[int, str] | None, ...] | None


def recorded_part(part: FailingPart) -> RecordedPart:
    """What was recorded of a part. Tensors are cloned on the CPU; arguments that are no tensors must be equal in all
    calls, so other calls are left out."""
    unit = part.unit
    calls = [
        _by_position(getattr(unit.module, unit.method), *_call(part, probe.values)) for probe in part.subject.probes
    ]
    usable = [call for call in calls if call is not None and _alike(call, calls[0])]
    distinct = _with_other_shapes(usable)[:_MOST_CALLS]
    return RecordedPart(unit.path, unit.module, unit.method, tuple(distinct), _dynamic(distinct))


def _call(part: FailingPart, values: Sequence[object]) -> tuple[Args, dict[str, object]]:
    model = part.subject.model
    if isinstance(model, IsolatedModule):
        return model.call_of([value for value in values if isinstance(value, torch.Tensor)])
    return part.subject.inputs.rebuild(values)


def _by_position(method: object, args: Args, kwargs: dict[str, object]) -> Args | None:
    """The arguments by position, as far as the last one that was given; None where that is not possible."""
    assert callable(method)
    try:
        bound = inspect.signature(method).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None
    given = list(bound.arguments)
    bound.apply_defaults()
    if bound.kwargs:
        return None
    names = list(bound.arguments)
    # Defaults behind the last argument that was given are left out. `*args` is one name for several positions.
    last = names.index(given[-1]) + 1 if given else 0
    return tuple(_copied(value) for value in bound.args[: max(last, len(bound.args) - len(names) + last)])


def _copied(value: object) -> object:
    return value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value


def _alike(call: Args, first: Args | None) -> bool:
    """Whether two calls differ in tensors only."""
    if first is None or len(call) != len(first):
        return False
    return all(
        isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dim() == b.dim()
        if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor)
        else type(a) is type(b) and a == b
        for a, b in zip(call, first, strict=True)
    )


def _with_other_shapes(calls: Sequence[Args]) -> list[Args]:
    """The calls, those first whose shapes were not there before; the example stays the first."""
    seen: set[tuple[torch.Size, ...]] = set()
    new: list[Args] = []
    more: list[Args] = []
    for call in calls:
        shapes = _shapes(call)
        (more if shapes in seen else new).append(call)
        seen.add(shapes)
    return [*new, *more]


def _shapes(call: Args) -> tuple[torch.Size, ...]:
    return tuple(value.shape for value in call if isinstance(value, torch.Tensor))


def _dynamic(calls: Sequence[Args]) -> tuple[dict[int, str] | None, ...] | None:
    """dynamic_shapes: an axis with several sizes has a name; axes that always have the same size have the same."""
    names: dict[tuple[int, ...], str] = {}

    def axes(values: Sequence[object]) -> dict[int, str] | None:
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        if len(tensors) < len(values):
            return None
        found = {}
        for axis in range(tensors[0].dim()):
            sizes = tuple(tensor.shape[axis] for tensor in tensors)
            if len(set(sizes)) > 1:
                found[axis] = names.setdefault(sizes, f"n{len(names)}")
        return found or None

    made = tuple(axes(values) for values in zip(*calls, strict=True))
    return made if any(made) else None


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
    tree: CallTree = field(default_factory=dict)
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
        """Whether a part fails by itself as the whole model fails.

        Any failure counts where the whole export did not end; also of a `suspected` part, where the whole model's
        refusal names neither a line nor an operator.
        """
        whole = self.whole
        if whole.status == "slow" or (suspected and not (whole.places or operator_in(whole))):
            return trial.status in ("silent", "refused")
        return trial.status == whole.status and not other_reason(trial, whole, self.exporter)

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


def is_explained(trial: Trial, parts: Sequence[FailingPart], exporter: str) -> bool:
    """Whether failing parts explain a failure: of a refusal, one refused for the same reason; else any part."""
    if trial.status != "refused":
        return bool(parts)
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
    return execution_trace.first_failing_line(
        part.unit, subject, part.trial, lambda s: search.attempt(s, search.exporter, what), search.left
    )


def _wrapped(search: PartTrials) -> Subject | None:
    """The whole model exported as a part is; None where it takes or returns no tensor."""
    # As any other part: only arguments that the call gives are inputs of its graph.
    root = Unit("", search.root.model)
    calls = record(search.root.model, search.root.inputs, search.root.probes, [root])[root.key]
    case = case_of(root, calls, search.root.probes, 0)
    return part_subject(case, search.whole) if case is not None else None
