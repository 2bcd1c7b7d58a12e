"""From a model that fails down to the smallest parts that fail by themselves."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch.export import Dim

from onnxpatch.diagnosing.alone import Case, case_of, scriptable
from onnxpatch.diagnosing.calls import Tree, Unit, call_tree, record
from onnxpatch.diagnosing.caught import refusal, where_caught
from onnxpatch.diagnosing.diagnosis import Diagnosis
from onnxpatch.diagnosing.operator_lines import operator_in
from onnxpatch.diagnosing.places import Place
from onnxpatch.diagnosing.pointed import pointed
from onnxpatch.diagnosing.shorter import breaking_line
from onnxpatch.diagnosing.trial import Subject, Trial, attempt
from onnxpatch.registry import Registry
from onnxpatch.settings import Exporter

Progress = Callable[[str, int, int], None]
_POINTED = 2  # parts that are tried first because the failure points at them
_LEAST = 10.0  # seconds that every export gets: a sound part of a model takes two or three
_CALLS = 3  # calls of one module with other shapes that are looked at


@dataclass
class Found:
    """A part that fails while nothing that it calls does. also: other parts that are the same."""

    unit: Unit
    subject: Subject
    trial: Trial
    also: list[str] = field(default_factory=list)
    wrapped_is_right: bool = False


@dataclass
class Search:
    """The plain export of `root` and, where it fails, of its parts. budget: seconds."""

    root: Subject
    diagnosis: Diagnosis
    tolerance: float
    budget: float
    registry: Registry
    progress: Progress | None = None
    whole: Trial = field(default_factory=Trial)
    _known: dict[Any, tuple[Unit, list[Found]]] = field(default_factory=dict)
    _tree: Tree | None = None
    _late: bool = False
    _catches: bool = False

    def __post_init__(self) -> None:
        self.deadline = time.perf_counter() + self.budget

    @property
    def exporter(self) -> Exporter:
        return self.diagnosis.exporter

    def left(self) -> float:
        """Seconds of the budget."""
        return self.deadline - time.perf_counter()

    def _spent(self) -> float:
        return 1 - self.left() / max(self.budget, 1e-9)

    def attempt(self, subject: Subject, exporter: str, what: str = "") -> Trial:
        """One export, which gets half of the time that is left."""
        if self.progress:
            self.progress(what, self.diagnosis.exports, 0)
        if self._catches and exporter == "trace":
            places = where_caught(subject)
            if places:
                return refusal(places)
        self.diagnosis.exports += 1
        return attempt(subject, exporter, self.diagnosis.opset, self.tolerance, max(self.left() / 2, _LEAST))

    def run(self) -> list[Found]:
        """The parts at fault, the likeliest first; [] where the plain export is right."""
        self._catches = bool(where_caught(self.root))
        self.whole = self.attempt(self.root, self.exporter, "the whole model")
        self.diagnosis.status, self.diagnosis.error = self.whole.status, self.whole.error[:2000]
        if not self.whole.fails:
            return []
        self._tree = call_tree(self.root.model, self.root.inputs)
        found = self._from_pointed() or self._descend(self._tree.root, self.root, self.whole)
        for one in found:
            if one.subject is self.root and self.exporter != "dynamo" and self._leaves_defaults():
                one.wrapped_is_right = self._right_when_wrapped()
        if self._late:
            self.diagnosis.notes.append("the budget was spent before every part was tried: give a larger budget=")
        return sorted(found, key=self._order)

    def _order(self, one: Found) -> tuple[bool, bool, bool]:
        """First what fails as the whole model fails, then what the error points at."""
        pointed = any(place.module is one.unit.module for place in self.whole.places)
        another = self.whole.status == "refused" and self._another(one.trial, self.whole)
        return one.trial.status != self.whole.status, another, not pointed

    def _from_pointed(self) -> list[Found]:
        """What is wrong inside the parts that the failure points at; [] where they are fine by themselves."""
        assert self._tree is not None
        for unit in pointed(self._tree, self.whole, self.root.probes)[:_POINTED]:
            calls = record(self.root.model, self.root.inputs, self.root.probes, [unit])
            case = case_of(unit, calls[unit.key], self.root.probes, 0)
            case = scriptable(case) if case is not None and self.exporter == "script" else case
            if case is None or self.left() <= 0:
                continue
            subject = _subject(case, self.whole)
            tried = self.attempt(subject, self.exporter, unit.name)
            self._known[case.key] = unit, []
            if tried.status == self.whole.status and not self._another(tried, self.whole):
                self._known[case.key] = unit, self._descend(unit, subject, tried)
                return self._known[case.key][1]
        return []

    # -------------------------------------------------------------- one level
    def _descend(self, unit: Unit, subject: Subject, trial: Trial, blame: bool = True) -> list[Found]:
        found: list[Found] = []
        elsewhere: list[Found] = []
        doubtful: list[tuple[Unit, Case]] = []
        for child, case in self._cases(unit, trial, found):
            if self.left() <= 0:
                self._late = True
                break
            if case.key in self._known:
                elsewhere += self._same(child, case)
                continue
            subject_of = _subject(case, trial)
            tried = self.attempt(subject_of, self.exporter, child.name)
            self._known[case.key] = child, []
            if tried.status == "refused" and trial.status == "silent":
                doubtful.append((child, case))  # the parent exports with it inside: alone, something is missing
            elif tried.status == "slow" and trial.status != "slow":
                self._late = True  # nothing is known of it: that it takes long is not what ails its parent
            elif tried.fails:
                inside = self._descend(child, subject_of, tried)
                self._known[case.key] = child, inside
                found += inside
                elsewhere += [] if inside else [Found(child, subject_of, tried)]  # by a part named already
        for child, case in doubtful if not found else ():
            found += self._descend(child, _subject(case, trial), trial, blame=False)
        if blame and not self._explained(trial, found + elsewhere):
            found.append(Found(unit, subject, trial))
        return found

    def _explained(self, trial: Trial, found: list[Found]) -> bool:
        """A refusal is explained by a part that is refused in such words; a wrong graph by any part that fails."""
        if trial.status != "refused":
            return bool(found)
        return any(one.trial.status == "refused" and not self._another(one.trial, trial) for one in found)

    def _another(self, trial: Trial, parent: Trial) -> bool:
        """Whether two refusals are about different operators, or only one of them about an operator."""
        return operator_in(trial).partition(".")[0] != operator_in(parent).partition(".")[0]

    def _same(self, child: Unit, case: Case) -> list[Found]:
        """A part of the same class, configuration and shapes was tried already: it shares the verdict."""
        first, found = self._known[case.key]
        for one in found:
            name = child.name + one.unit.name[len(first.name) :]
            if one.unit.name.startswith(first.name) and name not in (one.unit.name, *one.also):
                one.also.append(name)
        return found

    def _cases(self, unit: Unit, trial: Trial, found: list[Found]) -> Iterator[tuple[Unit, Case]]:
        """The parts that a unit calls, with what they are called with: those that the error points at first."""
        assert self._tree is not None
        children = sorted(self._tree.children(unit), key=lambda child: self._rank(child, trial))
        if not children:
            return
        calls = record(self.root.model, self.root.inputs, self.root.probes, children)
        for child in children:
            if found and (_plain_layer(child, self._tree) or self._spent() > 1 / 3):
                continue  # one culprit is named already: others may wait for the next call
            seen: set[Any] = set()
            for which in range(min(len(calls[child.key][0]), 24)):
                case = case_of(child, calls[child.key], self.root.probes, which)
                if case is not None and self.exporter == "script":
                    case = scriptable(case)
                if case is not None and case.key not in seen and len(seen) < _CALLS:
                    seen.add(case.key)
                    yield child, case

    def _rank(self, child: Unit, trial: Trial) -> tuple[bool, bool]:
        assert self._tree is not None
        under = {id(module) for module in child.module.modules()}
        pointed = any(id(place.module) in under for place in trial.places)
        return not pointed, _plain_layer(child, self._tree)

    def _leaves_defaults(self) -> bool:
        """Whether arguments are left at their defaults: the TorchScript exporter makes inputs of them."""
        given = self.root.inputs.graph_leaves(self.exporter)
        return len(given) < len(inspect.signature(self.root.model.forward).parameters)

    def _right_when_wrapped(self) -> bool:
        """Whether the model exports right when it is given its arguments and nothing else."""
        alone = self.wrapped() if self.exporter != "script" and self.left() > 0 else None
        if alone is None:
            return False
        return self.attempt(alone, self.exporter, "the model, given its arguments only").status == "right"

    def wrapped(self) -> Subject | None:
        """The whole model as a part of itself; None where it takes or gives no tensor."""
        root = Unit("", self.root.model)
        calls = record(self.root.model, self.root.inputs, self.root.probes, [root])[root.key]
        case = case_of(root, calls, self.root.probes, 0)
        return _subject(case, self.whole) if case is not None else None

    def breaking_line(self, one: Found) -> list[Place]:
        """The line with which a part is refused, by exports of its first lines."""
        subject = self.wrapped() if one.subject is self.root else one.subject
        if subject is None or self.left() <= 0:
            return []
        what = f"the first lines of {one.unit.name}"
        return breaking_line(one.unit, subject, one.trial, lambda s: self.attempt(s, self.exporter, what), self.left)


def _subject(case: Case, parent: Trial) -> Subject:
    """Where the parent is wrong, a part that eager itself is unsteady in is what makes it so.

    A size that is an expression in the parent (height * width) is fixed there without a word; alone it is a size of its
    own, and only Dim.AUTO lets it be fixed as quietly.
    """
    quiet = parent.status == "silent"
    specs = [{axis: Dim.AUTO if quiet else spec for axis, spec in one.items()} for one in case.specs]
    return Subject(case.model, case.inputs, specs, case.probes, strict=parent.wrong_at())


def _plain_layer(unit: Unit, tree: Tree) -> bool:
    """A layer of torch's own that calls no other."""
    return type(unit.module).__module__.startswith("torch.nn.modules") and not tree.children(unit)
