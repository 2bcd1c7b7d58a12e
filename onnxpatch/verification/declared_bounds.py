"""The sizes for which a file says that it is right, by the dimensions of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.onnxfile import size_bounds
from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.onnxfile.size_bounds import SizeBound
from onnxpatch.verification.input_matching import Feed


def declared_bounds(graph: Graph, feed: Feed, dims: Sequence[DynamicDim]) -> dict[str, SizeBound]:
    """The bounds in a file's metadata, by the name of the dimension that has their places."""
    bounds = size_bounds.read({entry.key: entry.value for entry in graph.proto.metadata_props})
    by_place = {(feed.leaves.get(name), axis): bound for bound in bounds for name, axis in bound.places}
    return {dim.name: by_place[leaf, axis] for dim in dims for leaf, axis, _ in dim.places if (leaf, axis) in by_place}


def within(bounds: Mapping[str, SizeBound]) -> Callable[[Mapping[str, int]], bool] | None:
    """Whether sizes are within the bounds; None where there are no bounds."""
    if not bounds:
        return None
    return lambda sizes: all(bound.admits(sizes[name]) for name, bound in bounds.items() if name in sizes)
