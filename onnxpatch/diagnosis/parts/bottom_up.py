"""Searches a model for failing parts from the smallest up, where its large parts take too long to export.

The usual search goes down from the whole model, and exports a large part on every level. Here parts are tried in the
order of their size, those first that the error names. A part that fails is a smallest one, since all that it calls was
tried before it.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnxpatch.diagnosis.parts.failing_part import FailingPart, plain_layer
from onnxpatch.diagnosis.parts.isolated_module import Case, case_of
from onnxpatch.diagnosis.parts.module_calls import Tree, Unit, record
from onnxpatch.diagnosis.parts.named_parts import named_parts
from onnxpatch.diagnosis.parts.part_trials import PartTrials

_SHARE_OF_ONE = 1 / 6  # of the time that is left, for one part
_SHARE_AFTER_FIND = 1 / 3  # of the time, after which the search ends once a part was found
# Not all at once: the clones of their inputs are in memory together.
_BATCH = 8  # parts whose inputs are recorded in one run

Key = tuple[int, str]


def search_bottom_up(search: PartTrials) -> list[FailingPart]:
    """The smallest parts that fail as the whole model does; where none does, those that take too long alone."""
    assert search.tree is not None
    found: list[FailingPart] = []
    slow = search.slow
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
            subject, tried = search.try_part(case, search.whole, _SHARE_OF_ONE)
            one, fails = FailingPart(unit, subject, tried), search.fails_alike(tried)
            search.known[case.key] = unit, [one] if fails else []
            if fails or tried.status == "slow":
                (found if fails else slow).append(one)
                blamed.add(unit.key)
    return found or (slow if search.whole.status == "slow" else [])


def _cases(search: PartTrials) -> Iterator[tuple[Unit, Case]]:
    assert search.tree is not None
    units = _in_order(search)
    for batch in (units[i : i + _BATCH] for i in range(0, len(units), _BATCH)):
        calls = record(search.root.model, search.root.inputs, search.root.probes, batch)
        for unit in batch:
            case = case_of(unit, calls[unit.key], search.root.probes, 0)
            if case is not None:
                yield unit, case


def _in_order(search: PartTrials) -> list[Unit]:
    """Units from the smallest up, those that the error names first; torch's own plain layers are left out."""
    tree = search.tree
    assert tree is not None
    units = {unit.key: unit for children in tree.below.values() for unit in children if unit.key != tree.root.key}
    suspected = {unit.key for unit in named_parts(tree, search.whole, search.root)}
    size = {key: len(_units_within(tree, unit)) for key, unit in units.items()}
    parts = [unit for unit in units.values() if not plain_layer(unit, tree)]
    return sorted(parts, key=lambda unit: (unit.key not in suspected, size[unit.key]))


def _units_within(tree: Tree, unit: Unit) -> dict[Key, Unit]:
    """A unit and all units that it calls, at any depth."""
    found = {unit.key: unit}
    pending = [unit]
    while pending:
        for child in tree.children(pending.pop()):
            if child.key not in found:
                found[child.key] = child
                pending.append(child)
    return found
