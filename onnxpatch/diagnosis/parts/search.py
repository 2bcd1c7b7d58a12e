"""Searches a failing model for the smallest parts that fail by themselves.

Every submodule is recorded in eager (`module_calls.py`) and exported alone (`isolated_module.py`). The search goes down
from the whole model: where a part fails and none of the parts that it calls explains that, it is at fault.

    model            refused
      encoder        right           nothing below is tried
      decoder        refused
        attention    right
        rope         refused         calls nothing that fails: at fault

Two shortcuts: parts that the error itself names are tried first (`named_parts`), and where one export of the whole
model takes long, the search goes from the smallest parts up (`_search_bottom_up`). Parts of equal class, configuration
and shapes share one verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch

from onnxpatch.decisions.ask import Site
from onnxpatch.diagnosis.lines.exporter_lines import broken_conditions, operator_in, operator_nodes
from onnxpatch.diagnosis.parts.isolated_module import Calls, Case, case_of, record, scriptable
from onnxpatch.diagnosis.parts.module_calls import CallTree, Key, Unit, call_tree
from onnxpatch.diagnosis.parts.part_trials import (
    FailingPart,
    PartTrials,
    is_explained,
    leaves_defaults,
    other_reason,
    part_subject,
    plain_layer,
    right_when_wrapped,
)
from onnxpatch.diagnosis.trial import Subject, Trial

_SHARE_OF_ONE = 1 / 6  # of the time that is left, for one part
_SHARE_AFTER_FIND = 1 / 3  # of the time, after which the search ends once a part was found
# Not all at once: the clones of their inputs are in memory together.
_BATCH = 8  # parts whose inputs are recorded in one run
_MOST_NAMED = 2  # parts that are tried first because the failure names them
_LONG = 1 / 6  # of the budget: where the whole model's export takes longer, the largest parts are not tried first
_MOST_SHAPES = 3  # calls of one module with different shapes that are tried
_MOST_CALLS = 24  # calls of one module that are looked at for new shapes


class Search(PartTrials):
    """Exports `root` plainly and, where that fails, its parts."""

    def run(self) -> list[FailingPart]:
        """The parts at fault, the likeliest first; [] where the plain export is right."""
        self.whole = self.attempt(self.root, self.exporter, "the whole model")
        self.diagnosis.status, self.diagnosis.error = self.whole.status, self.whole.error[:2000]
        if not self.whole.fails:
            return []
        self.tree = call_tree(self.root.model, self.root.inputs)
        # The cheapest search first.
        parts = (
            self._from_pointed()
            or self._from_below()
            or self._descend(Unit("", self.root.model), self.root, self.whole)
        )
        for part in parts:
            if part.subject is self.root and self.exporter != "dynamo" and leaves_defaults(self):
                part.wrapped_is_right = right_when_wrapped(self)
        if self.budget_spent:
            self.diagnosis.notes.append("the budget was spent before every part was tried: give a larger budget=")
        return sorted(parts, key=self._order)

    def _order(self, part: FailingPart) -> tuple[bool, bool, bool]:
        """First what fails as the whole model fails, then what the error names; what is only slow comes last."""
        slow_whole = self.whole.status == "slow"
        other_status = part.trial.status == "slow" if slow_whole else part.trial.status != self.whole.status
        other = self.whole.status == "refused" and other_reason(part.trial, self.whole, self.exporter)
        named = any(place.module is part.unit.module for place in self.whole.places)
        return other_status, other, not named

    # -------------------------------------------------------------- where to begin
    def _from_pointed(self) -> list[FailingPart]:
        """The failing parts inside those that the failure names; [] where these are right by themselves."""
        for unit in named_parts(self.tree, self.whole, self.root)[:_MOST_NAMED]:
            calls = record(self.root.model, self.root.inputs, self.root.probes, [unit])
            case = self._case(unit, calls[unit.key], 0)
            if case is None or self.left() <= 0:
                continue
            subject, trial = self.try_part(case, self.whole, 1 / 2 if self.whole.status != "slow" else 1 / 4)
            # Before the descent: inside, the same part may come again.
            self.known[case.key] = unit, []
            self.slow += [FailingPart(unit, subject, trial)] if trial.status == "slow" else []
            if self.fails_alike(trial, suspected=self.whole.status == "refused"):
                self.known[case.key] = unit, self._descend(unit, subject, trial)
                return self.known[case.key][1]
        return []

    def _from_below(self) -> list[FailingPart]:
        """The failing parts found from the smallest up, where the whole model takes long to export; else []."""
        if self.exporter != "dynamo" or self.whole.seconds < _LONG * self.budget:
            return []
        return _search_bottom_up(self)

    # -------------------------------------------------------------- one level down
    def _descend(self, unit: Unit, subject: Subject, trial: Trial, blame: bool = True) -> list[FailingPart]:
        """The smallest failing parts in a unit that fails; the unit itself where its parts do not explain it.

        blame: False for a unit that fails only when it is alone, and so is not at fault itself.
        """
        level = _Level()
        for child, case in self._cases(unit, trial, level.found):
            if self.left() <= 0:
                self.budget_spent = True
                break
            if case.key in self.known:
                level.shared += self.share_verdict(child, case)
            else:
                self._try_child(child, case, trial, level)
        # Last: a part that fails only alone is no fault of the model, but something inside may be.
        for child, case in level.doubtful if not level.found else ():
            level.found += self._descend(child, part_subject(case, trial), trial, blame=False)
        if blame and not is_explained(trial, level.found + level.shared, self.exporter):
            level.found.append(FailingPart(unit, subject, trial))
        return level.found

    def _try_child(self, child: Unit, case: Case, parent: Trial, level: _Level) -> None:
        subject, trial = self.try_part(case, parent)
        self.known[case.key] = child, []
        if trial.status == "refused" and parent.status == "silent":
            level.doubtful.append((child, case))  # the parent exports with it inside: alone, something is missing
        elif trial.status == "slow" and parent.status != "slow":
            self.budget_spent = True  # no verdict: that it takes long is not why its parent fails
        elif trial.fails:
            inside = self._descend(child, subject, trial)
            self.known[case.key] = child, inside
            level.found += inside
            # Nothing new inside: it fails through a part that has been found elsewhere.
            level.shared += [] if inside else [FailingPart(child, subject, trial)]

    def _cases(self, unit: Unit, trial: Trial, found: list[FailingPart]) -> Iterator[tuple[Unit, Case]]:
        """The parts that a unit calls, with recorded inputs; those that the error names first.

        found: what has failed on this level so far, to leave out unlikely parts from then on.
        """
        children = sorted(self.tree.get(unit.key, ()), key=lambda child: self._rank(child, trial))
        if not children:
            return
        # One level at a time: clones of the inputs of all modules would not fit into memory.
        calls = record(self.root.model, self.root.inputs, self.root.probes, children)
        for child in children:
            third_spent = 1 - self.left() / max(self.budget, 1e-9) > 1 / 3
            if found and (plain_layer(child, self.tree) or third_spent):
                continue  # one culprit is found: the others may wait for the next call of the doctor
            seen: set[tuple[object, ...]] = set()
            for which in range(min(len(calls[child.key][0]), _MOST_CALLS)):
                case = self._case(child, calls[child.key], which)
                if case is not None and case.key not in seen and len(seen) < _MOST_SHAPES:
                    seen.add(case.key)
                    yield child, case

    def _case(self, unit: Unit, calls: Calls, which: int) -> Case | None:
        case = case_of(unit, calls, self.root.probes, which)
        return scriptable(case) if case is not None and self.exporter == "script" else case

    def _rank(self, child: Unit, trial: Trial) -> tuple[bool, bool]:
        within = {id(module) for module in child.module.modules()}
        named = any(id(place.module) in within for place in trial.places)
        return not named, plain_layer(child, self.tree)


@dataclass
class _Level:
    """What is known of the parts of one unit.

    shared: failing parts that were found elsewhere, and explain a failure here. doubtful: parts that fail only alone.
    """

    found: list[FailingPart] = field(default_factory=list)
    shared: list[FailingPart] = field(default_factory=list)
    doubtful: list[tuple[Unit, Case]] = field(default_factory=list)


def _search_bottom_up(search: PartTrials) -> list[FailingPart]:
    """The smallest parts that fail as the whole model does; where none does, those that take too long alone."""
    found, slow = list[FailingPart](), search.slow
    blamed = {one.unit.key for one in slow}
    time_at_start = search.left()
    for unit, case in _cases(search):
        if search.left() <= 0 or (found and search.left() < time_at_start * (1 - _SHARE_AFTER_FIND)):
            search.budget_spent |= not found
            break
        if case.key in search.known:
            search.share_verdict(unit, case)
        # A part around one that fails would fail because of it.
        elif not blamed & _units_within(search.tree, unit).keys():
            one = _tried_alone(search, unit, case)
            fails = search.fails_alike(one.trial)
            if fails or one.trial.status == "slow":
                (found if fails else slow).append(one)
                blamed.add(unit.key)
    return found or (slow if search.whole.status == "slow" else [])


def _tried_alone(search: PartTrials, unit: Unit, case: Case) -> FailingPart:
    subject, tried = search.try_part(case, search.whole, _SHARE_OF_ONE)
    one = FailingPart(unit, subject, tried)
    search.known[case.key] = unit, [one] if search.fails_alike(tried) else []
    return one


def _cases(search: PartTrials) -> Iterator[tuple[Unit, Case]]:
    units = _in_order(search)
    for batch in (units[i : i + _BATCH] for i in range(0, len(units), _BATCH)):
        calls = record(search.root.model, search.root.inputs, search.root.probes, batch)
        for unit in batch:
            case = case_of(unit, calls[unit.key], search.root.probes, 0)
            if case is not None:
                yield unit, case


def _in_order(search: PartTrials) -> list[Unit]:
    """Units from the smallest up, those that the error names first; torch's own plain layers are left out."""
    tree, root = search.tree, Unit("", search.root.model)
    units = {unit.key: unit for children in tree.values() for unit in children if unit.key != root.key}
    suspected = {unit.key for unit in named_parts(tree, search.whole, search.root)}
    size = {key: len(_units_within(tree, unit)) for key, unit in units.items()}
    parts = [unit for unit in units.values() if not plain_layer(unit, tree)]
    return sorted(parts, key=lambda unit: (unit.key not in suspected, size[unit.key]))


def _units_within(tree: CallTree, unit: Unit) -> dict[Key, Unit]:
    """A unit and all units that it calls, at any depth."""
    found = {unit.key: unit}
    pending = [unit]
    while pending:
        for child in tree.get(pending.pop().key, ()):
            if child.key not in found:
                found[child.key] = child
                pending.append(child)
    return found


def named_parts(tree: CallTree, trial: Trial, subject: Subject) -> list[Unit]:
    """Units below the root, the likeliest first.

    Named are: the module that calls the operator in the error, the module whose line raised it, and modules with a
    condition on sizes that is false where the graph is wrong (of an export that did not end: false at any probe).
    """
    known = {unit.key: unit for units in tree.values() for unit in units}
    found = (unit for unit in _named(known, trial, subject) if unit.key != Unit("", subject.model).key)
    return list(dict.fromkeys(found))


def _named(known: dict[Key, Unit], trial: Trial, subject: Subject) -> Iterator[Unit]:
    refused = list(_from_error(known, trial)) if trial.status in ("refused", "slow") else []
    yield from refused
    # An error that names a module is better evidence than a condition that is false somewhere.
    for stack in broken_conditions(trial, subject) if not refused or trial.status == "slow" else ():
        yield from _unit_of(stack, known)


def _from_error(known: dict[Key, Unit], trial: Trial) -> Iterator[Unit]:
    """The units that an error names; for an export that took too long, those that ran when time was up."""
    paths = {unit.path: unit for unit in known.values() if unit.method == "forward"}
    yield from (paths[path] for path in _operator_paths(trial) if path in paths)
    yield from _unit_of(reversed(trial.places), known)


def _unit_of(places: Iterable[Site], known: dict[Key, Unit]) -> list[Unit]:
    """The unit of the innermost module on a stack, alone, if it has one; places: innermost first."""
    inner = next((place for place in places if isinstance(place.module, torch.nn.Module)), None)
    keys = [(id(inner.module), inner.function), (id(inner.module), "forward")] if inner is not None else []
    return [known[key] for key in keys if key in known][:1]


def _operator_paths(trial: Trial) -> Iterator[str]:
    operator = operator_in(trial)
    for node in operator_nodes(trial.captured, operator) if operator and trial.captured is not None else ():
        # By module, outermost first: (path, class).
        module_stack: dict[str, tuple[str, object]] = node.meta.get("nn_module_stack") or {}
        if module_stack:
            yield str(list(module_stack.values())[-1][0])
