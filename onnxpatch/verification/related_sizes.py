"""Which relation between sizes has a wrong graph wherever it is right? `t = p+n`, where eager takes any t."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from onnxpatch.inputs.dims import SizeRelation, relations, sizes_with
from onnxpatch.results.checks import Checked, RightWithin
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Probe

MOST_TRIED = 12
_LEAST_TRIED = 3


def relation_of(oracle: Oracle, checks: Sequence[Checked], right: Callable[[Probe], bool]) -> RightWithin | None:
    """The first relation that all right checks have and no wrong one has, and that is right at other sizes as well."""
    for relation in relations(oracle.dims):
        if all(_explains(relation, {**oracle.example, **check.sizes}, check.ok) for check in checks):
            oracle.reserve(2 * MOST_TRIED)
            probes = tried(oracle, relation)
            if len(probes) >= _LEAST_TRIED and all(map(right, probes)):
                text, of = relation.size.text, len(probes)
                said = f'right wherever {relation.name} = {text} ({of} of {of}): write "{text}" for {relation.name}'
                return RightWithin(relation.name, text, f"{said}, or export with bounds='narrow'")
    return None


def _explains(relation: SizeRelation, sizes: Mapping[str, int], right: bool) -> bool:
    """Whether a relation has it so that a graph is right there, or wrong. A size of 1 may be right by broadcasting."""
    return relation.holds(sizes) == right or (right and sizes[relation.name] == 1)


def tried(oracle: Oracle, relation: SizeRelation) -> list[Probe]:
    """Probes at sizes that have a relation, where eager takes them."""
    found = (oracle.at(sizes, must=True) for sizes in sizes_with(relation, oracle.dims))
    return list({id(one): one for one in itertools.islice(filter(None, found), MOST_TRIED)}.values())
