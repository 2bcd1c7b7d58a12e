"""Finds the parts that a failure itself names, to be tried before the tree is searched from the top."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from onnxpatch.decisions.place import Site
from onnxpatch.diagnosis.lines.guard_lines import broken_conditions
from onnxpatch.diagnosis.lines.operator_lines import operator_in, operator_nodes
from onnxpatch.diagnosis.parts.module_calls import CallTree, Unit
from onnxpatch.diagnosis.trials.trial import Subject, Trial


def named_parts(tree: CallTree, trial: Trial, subject: Subject) -> list[Unit]:
    """Units below the root, the likeliest first.

    Named are: the module that calls the operator in the error, the module whose line raised it, and modules with a
    condition on sizes that is false where the graph is wrong (of an export that did not end: false at any probe).
    """
    known = {unit.key: unit for units in tree.below.values() for unit in units}
    found = (unit for unit in _named(tree, known, trial, subject) if unit.key != tree.root.key)
    return list(dict.fromkeys(found))


def _named(tree: CallTree, known: dict[tuple[int, str], Unit], trial: Trial, subject: Subject) -> Iterator[Unit]:
    refused = list(_from_error(known, trial)) if trial.status in ("refused", "slow") else []
    yield from refused
    # An error that names a module is better evidence than a condition that is false somewhere.
    for stack in broken_conditions(trial, subject) if not refused or trial.status == "slow" else ():
        yield from list(_units(iter(stack), known))[:1]


def _from_error(known: dict[tuple[int, str], Unit], trial: Trial) -> Iterator[Unit]:
    """The units that an error names; for an export that took too long, those that ran when time was up."""
    paths = {unit.path: unit for unit in known.values() if unit.method == "forward"}
    yield from (paths[path] for path in _operator_paths(trial) if path in paths)
    yield from _units(reversed(trial.places), known)


def _units(places: Iterator[Site], known: dict[tuple[int, str], Unit]) -> Iterator[Unit]:
    """The unit of the innermost module on a stack, if it has one; places: innermost first."""
    for place in places:
        if isinstance(place.module, torch.nn.Module):
            unit = known.get((id(place.module), place.function)) or known.get((id(place.module), "forward"))
            if unit is not None:
                yield unit
            return


def _operator_paths(trial: Trial) -> Iterator[str]:
    operator = operator_in(trial)
    for node in operator_nodes(trial.captured, operator) if operator and trial.captured is not None else ():
        # By module, outermost first: (path, class).
        module_stack: dict[str, tuple[str, object]] = node.meta.get("nn_module_stack") or {}
        if module_stack:
            yield str(list(module_stack.values())[-1][0])
