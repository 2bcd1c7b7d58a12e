"""Relations between sizes that an example has: `t = p+n`, `w = h`, `m = 2*n`, with sizes at which to try one.

p=3, n=4, t=7        t = p+n, tried at (p=4, n=4, t=8), (p=6, n=4, t=10), (p=3, n=5, t=8), ...
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.inputs.size_expressions import SizeExpression

_LARGEST_FACTOR = 64


@dataclass(frozen=True)
class SizeRelation:
    """A dimension whose size follows from others: name = size."""

    name: str
    size: SizeExpression

    @property
    def words(self) -> str:
        return f"{self.name} = {self.size.text}"

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether these sizes, of all dimensions, have the relation."""
        return sizes[self.name] == self.size.at(sizes)


def relations(dims: Sequence[DynamicDim]) -> Iterator[SizeRelation]:
    """The relations that the example's sizes have: equal sizes, sums of two, multiples."""
    example = {dim.name: dim.size for dim in dims}
    names = [name for name, size in example.items() if size > 1]
    multiples = itertools.product(names, range(2, _LARGEST_FACTOR + 1))
    sums = [*(((name, 1),) for name in names),
            *(((one, 1), (other, 1)) for one, other in itertools.combinations(names, 2)),
            *((one,) for one in multiples)]  # fmt: skip
    for terms in sums:
        text = "+".join(name if factor == 1 else f"{factor}*{name}" for name, factor in terms)
        size = SizeExpression(terms, 0, text)
        for dim in dims:
            plain = all(place.size.is_plain for place in dim.places)
            if plain and dim.name not in size.names and dim.size == size.at(example):
                yield SizeRelation(dim.name, size)


def sizes_with(relation: SizeRelation, dims: Sequence[DynamicDim]) -> Iterator[dict[str, int]]:
    """Other sizes that have the relation: each free dimension alone, and all together."""
    example = {dim.name: dim.size for dim in dims}
    free = [name for name in example if name != relation.name]
    moves = [lambda n: n + 1, lambda n: 2 * n, lambda n: n - 1, lambda n: 2 * n + 1]
    groups = [*([name] for name in relation.size.names), free, *([n] for n in free if n not in relation.size.names)]
    for move, moved in itertools.product(moves, groups):
        sizes = {**example, **{name: move(example[name]) for name in moved}}
        sizes[relation.name] = relation.size.at(sizes)
        if sizes != example and min(sizes.values()) > 0:
            yield sizes
