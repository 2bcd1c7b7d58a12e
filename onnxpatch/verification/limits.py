"""`Limits`: the sizes that a file is meant for, if these are fewer than eager accepts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.onnxfile import size_bounds
from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.onnxfile.size_bounds import SizeBound
from onnxpatch.verification.input_matching import Feed


@dataclass(frozen=True)
class Limits:
    """Bounds by the name of a dimension; a dimension without one has no limit."""

    bounds: Mapping[str, SizeBound] = field(default_factory=dict)

    def admits(self, sizes: Mapping[str, int]) -> bool:
        """Whether all of these sizes are within the bounds."""
        return all(bound.admits(sizes[name]) for name, bound in self.bounds.items() if name in sizes)

    @property
    def fixed(self) -> frozenset[str]:
        """Dimensions that have one size only."""
        return frozenset(name for name, bound in self.bounds.items() if bound.low == bound.high)

    def edges(self, dims: Sequence[DynamicDim]) -> Iterator[dict[str, int]]:
        """The sizes at the ends of each bound, one dimension at a time."""
        for dim in dims:
            if dim.name in self.bounds:
                yield from ({dim.name: size} for size in self.bounds[dim.name].edges(dim.size))

    @property
    def words(self) -> dict[str, str]:
        """The bounds as text: `h in 2..64`."""
        return {name: bound.words for name, bound in self.bounds.items()}


def kept(dims: Sequence[DynamicDim], names: Sequence[str]) -> Limits:
    """The limits of an export in which these dimensions keep the example's size."""
    return Limits({dim.name: SizeBound(dim.name, dim.size, dim.size) for dim in dims if dim.name in names})


def declared_limits(graph: Graph, feed: Feed, dims: Sequence[DynamicDim]) -> Limits:
    """The limits in a file's metadata. Dimensions are matched by their axes, since names may differ."""
    bounds = size_bounds.read({entry.key: entry.value for entry in graph.proto.metadata_props})
    by_place = {(feed.leaves.get(name), axis): bound for bound in bounds for name, axis in bound.places}
    places = [(dim.name, (leaf, axis)) for dim in dims for leaf, axis, size in dim.places if size.is_plain]
    return Limits({name: by_place[place] for name, place in places if place in by_place})
