"""Every value inside a graph on one input: the file is run again with all its values as outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxpatch.onnxfile.runtime import Graph

_IN_MEMORY = 1 << 30  # bytes of a file that is read into memory once more


def intermediate_values(graph: Graph, feed: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The inputs and every tensor of the main graph on one input, by name; sequences are left out.

    {} for a file above 1 GiB, and where the runtime refuses the input: callers lose a hint, not a verdict.
    """
    import onnx

    if graph.path.stat().st_size > _IN_MEMORY:
        return {}
    try:
        proto = onnx.load(str(graph.path))
    except Exception:  # weights in another file that is not there: onnx raises errors of many classes
        return {}
    known = [output.name for output in proto.graph.output]
    made = dict.fromkeys(name for node in proto.graph.node for name in node.output if name)
    names = [*known, *(name for name in made if name not in known)]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names[len(known) :])
    arrays = graph.arrays(feed)
    try:
        values = graph.run_another(proto, names, arrays)
    except Exception:  # onnxruntime and onnx.reference raise errors of many classes for an input that a node refuses
        return {}
    return {n: v for n, v in zip(names, values, strict=True) if not isinstance(v, list) and v is not None} | arrays


def intermediate_shapes(graph: Graph, feed: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shape of every such value."""
    return {name: tuple(np.shape(value)) for name, value in intermediate_values(graph, feed).items()}
