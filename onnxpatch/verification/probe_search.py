"""Which inputs to compare a graph at: other data, other branches, other sizes, all such as eager itself accepts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.verification.branch_recorder import Decisions
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.probe_data import variants
from onnxpatch.verification.size_branches import size_branches
from onnxpatch.verification.size_search import size_probes

_TRIES = 4  # other data tried for a branch, whatever it takes
_SIZES = 8  # probes at other sizes, however many inputs go down other branches
_LAST_QUESTIONS = 24  # for a dimension that has not moved when the search is over
_BRANCHES = 8  # inputs at most that send the forward down another branch

# Whole numbers and flags go into indices and masks, where a graph may be wrong without any branch.
_ALWAYS = ("whole numbers + 1", "flags flipped")
_MORE = ("whole numbers zero", "whole numbers negated", "whole numbers reversed", "flags all set", "no flag set")


def find_probes(oracle: Oracle, first: Probe, decisions: Decisions | None) -> list[Probe]:
    """The example first, then other data and branches, then sizes, the most telling first.

    first: the example with eager's answer; decisions: which way eager goes at its branches on the example.
    """
    probes = [first, *_other_data(oracle), *_branches(oracle, first, decisions)]
    compares = decisions is not None and decisions.sizes.comparisons
    decided = list(_unique(size_branches(oracle, decisions))) if decisions and compares else []
    most = oracle.budget.probes
    room = max(most - len(probes), min(_SIZES, most // 2))
    # They are asked for one by one: what there is no room for costs nothing.
    free = (probe for probe in _unique(size_probes(oracle)) if all(probe is not known for known in decided))
    found = [*probes, *decided, *itertools.islice(free, room)]
    return [*found, *_unmoved(oracle, found)] if most > 1 else found


def _unmoved(oracle: Oracle, found: Sequence[Probe]) -> Iterator[Probe]:
    """A probe for each dimension that none of those found moves: with the others as given, or with those that share
    its size. A declared dimension that never moved would be unproven."""
    for dim in oracle.dims:
        if oracle.moved_by(found, dim):
            continue
        known = next((probe for probe in oracle.accepted() if oracle.moved_by([probe], dim)), None)
        probe = known or _moving(oracle, dim)
        if probe:
            yield probe


def _moving(oracle: Oracle, dim: DynamicDim) -> Probe | None:
    n = dim.size
    oracle.reserve(_LAST_QUESTIONS)
    together = [other.name for other in oracle.dims if other.size == n]
    for size in dict.fromkeys([n + 1, n - 1, n // 2, 2 * n, n - 8, n + 8]):
        for names in ([dim.name], together):
            if size > 1 and (probe := oracle.at(dict.fromkeys(names, size), must=True)):
                return probe
    return None


def _other_data(oracle: Oracle) -> list[Probe]:
    """Not for a model whose example alone fills the budget: other sizes bring other data as well."""
    probe = oracle.other_data if not oracle.dims or oracle.affords_the_example else None
    return [probe] if probe else []


def _branches(oracle: Oracle, first: Probe, example: Decisions | None) -> Iterator[Probe]:
    """Data under which the forward decides otherwise. Whole numbers and flags are varied in any case."""
    values, seen = first.values, {example.signature if example else ()}
    decides, tried, flipped, most = seen != {()}, 0, False, _BRANCHES
    finite, compared = not (example and example.asks_finite), example.compared if example else ()
    for label, changed in variants(values, finite, compared) if decides or _whole(values) else ():
        if not most or (oracle.used_up and (flipped or tried >= _TRIES)) or oracle.late:
            return
        always = label in (_ALWAYS if oracle.used_up else _ALWAYS + _MORE) and not _equal(changed, values)
        watched = oracle.eager.decisions(changed) if decides else None
        tried += decides or always
        if (decides and watched is None) or (not always and (watched is None or watched.signature in seen)):
            continue
        flips = watched is not None and watched.signature not in seen
        flipped |= flips
        answer = oracle.eager.ask(changed)
        if answer.outputs is not None and (flips or oracle.usable(answer)):
            most -= 1
            kind = "branch" if flips else "data"
            yield oracle.kept(Probe(label, kind, first.sizes, changed, answer.outputs, answer.raw))
        seen |= {watched.signature} if watched else set()


def _whole(values: Sequence[Any]) -> bool:
    return any(isinstance(v, torch.Tensor) and not v.is_floating_point() and not v.is_complex() for v in values)


def _unique(probes: Iterator[Probe]) -> Iterator[Probe]:
    seen: set[int] = set()
    for probe in probes:
        if id(probe) not in seen:
            seen.add(id(probe))
            yield probe


def _equal(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True) if isinstance(x, torch.Tensor))
