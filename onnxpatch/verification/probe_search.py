"""Chooses the inputs to compare a graph at: other data, other branches and other sizes that eager accepts.

A graph is one path through the forward. It is wrong where eager takes another path, and no random input need show that:

    if x.sum() > 0: ...            other data of the same sign takes the same branch; x negated does not
    x[mask] = 0                    no branch, but other masks may be wrong: some are always tried
    if x.shape[1] > 512: ...       a size beyond the constant
    table[: x.shape[1]]            any other size

So candidates are made from what eager was seen to do at the example (`branch_recorder`, `size_recorder`): other data by
`data_search`, sizes that the forward asks about by `decided_sizes`, any other size by `size_search`. The budget is
shared: half for data, half for sizes, and a few runs beyond it for what would otherwise stay unproven.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.verification.branch_recorder import Decisions
from onnxpatch.verification.data_changes import MAGNITUDES, scaled
from onnxpatch.verification.data_search import DataSearch, equal
from onnxpatch.verification.decided_sizes import decided_sizes
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.size_search import size_probes

_SIZES = 8  # probes at other sizes, however many branches there are
_LAST_QUESTIONS = 24  # for a dimension without a probe at another size


def find_probes(oracle: Oracle, first: Probe, decisions: Decisions | None) -> list[Probe]:
    """The example first, then other data and branches, then other sizes, the most informative first.

    first: the example with eager's answer. decisions: the branches that eager takes at the example.
    """
    probes = [first, *_other_data(oracle), *DataSearch(oracle, first, decisions).probes()]
    most = oracle.budget.probes
    if most > _SIZES:
        probes += _magnitudes(oracle, first)
    decided = list(_unique(decided_sizes(oracle, decisions))) if decisions is not None else []
    room = max(most - len(probes), min(_SIZES, most // 2))
    # A generator: sizes beyond the number of probes are never run.
    free = (probe for probe in _unique(size_probes(oracle)) if all(probe is not known for known in decided))
    found = [*probes, *decided, *itertools.islice(free, room)]
    return [*found, *_unmoved(oracle, found)] if most > 1 else found


def _unmoved(oracle: Oracle, found: Sequence[Probe]) -> Iterator[Probe]:
    """A probe for each dimension that no probe so far moves: alone, or with the dimensions of the same size.

    Without one the dimension would be unproven.
    """
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
    # One off shows most; the others suit models that want even sizes or multiples of 8.
    for size in dict.fromkeys([n + 1, n - 1, n // 2, 2 * n, n - 8, n + 8]):
        for names in ([dim.name], together):
            if size > 1 and (probe := oracle.at(dict.fromkeys(names, size), must=True)):
                return probe
    return None


def _other_data(oracle: Oracle) -> list[Probe]:
    """A probe with other values; none if the example alone fills the budget, since other sizes bring other values."""
    probe = oracle.other_data if not oracle.dims or oracle.affords_the_example else None
    return [probe] if probe else []


def _magnitudes(oracle: Oracle, first: Probe) -> Iterator[Probe]:
    """Larger and smaller numbers: what overflows, or loses small terms, in the graph alone."""
    for label, values in (scaled(first.values, factor) for factor in MAGNITUDES):
        if equal(values, first.values) or not oracle.affords_the_example:
            continue
        answer = oracle.eager.ask(values)
        if answer.outputs is not None and answer.finite:
            yield oracle.remember(answer.probe(label, "data", first.sizes, values))


def _unique(probes: Iterator[Probe]) -> Iterator[Probe]:
    seen: set[int] = set()
    for probe in probes:
        if id(probe) not in seen:
            seen.add(id(probe))
            yield probe
