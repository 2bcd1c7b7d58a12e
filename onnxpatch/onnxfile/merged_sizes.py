"""Sizes written beside intermediate values that do not hold at every size.

`up(down(x)) + x` adds sizes 2*((n - 1)//2) + 2 and n. The dynamo exporter takes them for equal and calls all that
follows by one of the two. Eager accepts n = 1, where x is broadcast, and there the names are false. onnxruntime shares
memory between values that are called alike, and refuses to run ("Shape mismatch attempting to re-use buffer").
Without these names it finds the sizes while it runs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from onnxpatch.onnxfile.unread import edited

if TYPE_CHECKING:
    from onnx import NodeProto, ValueInfoProto

_BROADCASTING = frozenset({
    "Add", "Sub", "Mul", "Div", "Mod", "Pow", "PRelu", "Min", "Max", "Sum", "Mean", "And", "Or", "Xor", "Equal",
    "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Where", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
    "BitShift",
})  # fmt: skip

Shape = tuple["int | str", ...]


def forget_merged_sizes(file: str | os.PathLike[str]) -> bool:
    """Remove the shapes written beside the values from the first broadcast on that takes two sizes for one.

    Returns whether there was one. The file is changed in place.
    """
    with edited(file) as proto:
        graph = proto.graph
        shapes = {value.name: _shape(value) for value in (*graph.value_info, *graph.input)}
        merged = next((at for at, node in enumerate(graph.node) if _merges(node, shapes)), None)
        if merged is None:
            return False
        behind = {name for node in graph.node[merged:] for name in node.output}
        kept = [value for value in graph.value_info if value.name not in behind]
        del graph.value_info[:]
        graph.value_info.extend(kept)
        return True


def _shape(value: ValueInfoProto) -> Shape:
    return tuple(dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim)


def _merges(node: NodeProto, shapes: Mapping[str, Shape]) -> bool:
    """Whether an axis of a broadcast has two names among the inputs."""
    if node.op_type not in _BROADCASTING:
        return False
    found: Sequence[Shape] = [shapes[name] for name in node.input if name in shapes]
    # Axes are aligned from the last one on.
    axes = zip_longest(*(reversed(shape) for shape in found), fillvalue=1)
    return any(len({size for size in axis if isinstance(size, str)}) > 1 for axis in axes)
