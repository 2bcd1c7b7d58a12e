"""From a model that fails down to the smallest parts that fail by themselves."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from onnxpatch.diagnosis.lines.line_bisect import breaking_line, wording
from onnxpatch.diagnosis.lines.operator_lines import operator_in
from onnxpatch.diagnosis.parts.bottom_up import from_below
from onnxpatch.diagnosis.parts.failing_part import FailingPart, as_part, plain_layer
from onnxpatch.diagnosis.parts.isolated_module import Case, case_of, scriptable
from onnxpatch.diagnosis.parts.module_calls import Tree, Unit, call_tree, record
from onnxpatch.diagnosis.parts.named_parts import named_parts
from onnxpatch.diagnosis.stack_lines import Place
from onnxpatch.diagnosis.trials.attempt import Subject, Trial, attempt
from onnxpatch.patching.registry import Registry
from onnxpatch.results.diagnosis import Diagnosis
from onnxpatch.settings import Exporter

Progress = Callable[[str, int, int], None]
_POINTED = 2  # parts that are tried first because the failure points at them
_LEAST = 10.0  # seconds that every export gets: a sound part of a model takes two or three
_LONG = 1 / 6  # of the budget: where the whole model's export takes longer, the largest parts are not tried first
_CALLS = 3  # calls of one module with other shapes that are looked at


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
    tree: Tree | None = None
    late: bool = False
    slow: list[FailingPart] = field(default_factory=list)
    known: dict[Any, tuple[Unit, list[FailingPart]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.deadline = time.perf_counter() + self.budget

    @property
    def exporter(self) -> Exporter:
        return self.diagnosis.exporter

    def left(self) -> float:
        """Seconds of the budget."""
        return self.deadline - time.perf_counter()

    def spent(self) -> float:
        return 1 - self.left() / max(self.budget, 1e-9)

    def attempt(
        self, subject: Subject, exporter: str, what: str = "", share: float = 1 / 2, quick: bool = False
    ) -> Trial:
        """One export, which gets a share of the time that is left."""
        if self.progress:
            self.progress(what, self.diagnosis.exports, 0)
        self.diagnosis.exports += 1
        seconds = max(self.left() * share, _LEAST)
        return attempt(subject, exporter, self.diagnosis.opset, self.tolerance, seconds, quick)

    def run(self) -> list[FailingPart]:
        """The parts at fault, the likeliest first; [] where the plain export is right."""
        self.whole = self.attempt(self.root, self.exporter, "the whole model")
        self.diagnosis.status, self.diagnosis.error = self.whole.status, self.whole.error[:2000]
        if not self.whole.fails:
            return []
        self.tree = call_tree(self.root.model, self.root.inputs)
        found = self._from_pointed() or self._from_below() or self._descend(self.tree.root, self.root, self.whole)
        for one in found:
            if one.subject is self.root and self.exporter != "dynamo" and self._leaves_defaults():
                one.wrapped_is_right = self._right_when_wrapped()
        if self.late:
            self.diagnosis.notes.append("the budget was spent before every part was tried: give a larger budget=")
        return sorted(found, key=self._order)

    def _order(self, one: FailingPart) -> tuple[bool, bool, bool]:
        """First what fails as the whole model fails, then what the error points at; what is only slow comes last."""
        pointed = any(place.module is one.unit.module for place in self.whole.places)
        another = self.whole.status == "refused" and self.another(one.trial, self.whole)
        odd = one.trial.status == "slow" if self.whole.status == "slow" else one.trial.status != self.whole.status
        return odd, another, not pointed

    def _from_pointed(self) -> list[FailingPart]:
        """What is wrong inside the parts that the failure points at; [] where they are fine by themselves."""
        assert self.tree is not None
        for unit in named_parts(self.tree, self.whole, self.root)[:_POINTED]:
            calls = record(self.root.model, self.root.inputs, self.root.probes, [unit])
            case = case_of(unit, calls[unit.key], self.root.probes, 0)
            case = scriptable(case) if case is not None and self.exporter == "script" else case
            if case is None or self.left() <= 0:
                continue
            subject, tried = self.part(case, self.whole, 1 / 2 if self.whole.status != "slow" else 1 / 4)
            self.known[case.key] = unit, []
            self.slow += [FailingPart(unit, subject, tried)] if tried.status == "slow" else []
            if self.alike(tried, suspected=self.whole.status == "refused"):
                self.known[case.key] = unit, self._descend(unit, subject, tried)
                return self.known[case.key][1]
        return []

    def part(self, case: Case, parent: Trial, share: float = 1 / 2) -> tuple[Subject, Trial]:
        """A part alone. One that is refused in other words than its parent may miss how its sizes hang together there:
        it is tried again with sizes that may."""
        subject = as_part(case, parent)
        tried = self.attempt(subject, self.exporter, case.unit.name, share, quick=True)
        if self.exporter == "dynamo" and parent.status == tried.status == "refused" and self.another(tried, parent):
            loose = as_part(case, parent, loose=True)
            again = self.attempt(loose, self.exporter, case.unit.name, share, quick=True)
            if again.status == "right" or (again.status == "refused" and not self.another(again, parent)):
                return loose, again
            tried.twice = again.fails and again.status != "slow"
        return subject, tried

    def alike(self, tried: Trial, suspected: bool = False) -> bool:
        """Whether a part fails by itself as the whole model fails; of an export that did not end, or of a refusal that
        names neither line nor operator, in any way at all."""
        if self.whole.status == "slow" or (suspected and not (self.whole.places or operator_in(self.whole))):
            return tried.status in ("silent", "refused")
        return tried.status == self.whole.status and not self.another(tried, self.whole)

    def _from_below(self) -> list[FailingPart]:
        """What is found from the smallest parts up, where the large ones take too long to begin with them."""
        assert self.tree is not None
        if self.exporter != "dynamo" or self.whole.seconds < _LONG * self.budget:
            return []
        return from_below(self)

    # -------------------------------------------------------------- one level
    def _descend(self, unit: Unit, subject: Subject, trial: Trial, blame: bool = True) -> list[FailingPart]:
        found: list[FailingPart] = []
        elsewhere: list[FailingPart] = []
        doubtful: list[tuple[Unit, Case]] = []
        for child, case in self._cases(unit, trial, found):
            if self.left() <= 0:
                self.late = True
                break
            if case.key in self.known:
                elsewhere += self.same(child, case)
                continue
            subject_of, tried = self.part(case, trial)
            self.known[case.key] = child, []
            if tried.status == "refused" and trial.status == "silent":
                doubtful.append((child, case))  # the parent exports with it inside: alone, something is missing
            elif tried.status == "slow" and trial.status != "slow":
                self.late = True  # nothing is known of it: that it takes long is not what ails its parent
            elif tried.fails:
                inside = self._descend(child, subject_of, tried)
                self.known[case.key] = child, inside
                found += inside
                elsewhere += [] if inside else [FailingPart(child, subject_of, tried)]  # by a part named already
        for child, case in doubtful if not found else ():
            found += self._descend(child, as_part(case, trial), trial, blame=False)
        if blame and not self._explained(trial, found + elsewhere):
            found.append(FailingPart(unit, subject, trial))
        return found

    def _explained(self, trial: Trial, found: list[FailingPart]) -> bool:
        """A refusal is explained by a part that is refused in such words; a wrong graph by any part that fails."""
        if trial.status != "refused":
            return bool(found)
        return any(one.trial.status == "refused" and not self.another(one.trial, trial) for one in found)

    def another(self, trial: Trial, parent: Trial) -> bool:
        """Whether two refusals are about different operators, or, where they name none, in different words. These tell
        nothing of a part that fails in any case, nor with torch.jit.script, which compiles a class but once."""
        if "silent" in (trial.status, parent.status):
            return False
        mine, theirs = (operator_in(one).partition(".")[0] for one in (trial, parent))
        worded = not mine and self.exporter != "script" and not trial.twice
        return mine != theirs or (worded and wording(trial.error) != wording(parent.error))

    def same(self, child: Unit, case: Case) -> list[FailingPart]:
        """A part of the same class, configuration and shapes was tried already: it shares the verdict."""
        first, found = self.known[case.key]
        for one in found:
            name = child.name + one.unit.name[len(first.name) :]
            if one.unit.name.startswith(first.name) and name not in (one.unit.name, *one.also):
                one.also.append(name)
        return found

    def _cases(self, unit: Unit, trial: Trial, found: list[FailingPart]) -> Iterator[tuple[Unit, Case]]:
        """The parts that a unit calls, with what they are called with: those that the error points at first."""
        assert self.tree is not None
        children = sorted(self.tree.children(unit), key=lambda child: self._rank(child, trial))
        if not children:
            return
        calls = record(self.root.model, self.root.inputs, self.root.probes, children)
        for child in children:
            if found and (plain_layer(child, self.tree) or self.spent() > 1 / 3):
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
        assert self.tree is not None
        under = {id(module) for module in child.module.modules()}
        pointed = any(id(place.module) in under for place in trial.places)
        return not pointed, plain_layer(child, self.tree)

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
        return as_part(case, self.whole) if case is not None else None

    def breaking_line(self, one: FailingPart) -> list[Place]:
        """The line with which a part is refused, by exports of its first lines."""
        subject = self.wrapped() if one.subject is self.root else one.subject
        if subject is None or self.left() <= 0:
            return []
        what = f"the first lines of {one.unit.name}"
        return breaking_line(one.unit, subject, one.trial, lambda s: self.attempt(s, self.exporter, what), self.left)
