"""The value of every intermediate tensor of a graph: the model is run once more with all its values as outputs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.onnxfile.runtimes.interface import Array, as_array

_LARGEST = 1 << 30  # bytes: a larger file is not read into memory a second time


def intermediate_values(graph: Graph, feed: Mapping[str, object]) -> dict[str, Array]:
    """The inputs and every tensor of the main graph, by name, when it runs on `feed`. Sequences are left out.

    {} for a file above 1 GiB, and where the runtime refuses the input. Callers use the values to name the node at
    fault; the verdict does not depend on them.
    """
    import onnx

    if graph.path.stat().st_size > _LARGEST:
        return {}
    try:
        proto = onnx.load(str(graph.path))
    except Exception:  # onnx raises errors of many classes where a file with weights is missing
        return {}
    outputs = [output.name for output in proto.graph.output]
    computed = dict.fromkeys(name for node in proto.graph.node for name in node.output if name)
    names = [*outputs, *(name for name in computed if name not in outputs)]
    # Without a type: runtimes infer it, and the file may not say it.
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names[len(outputs) :])
    arrays = graph.arrays(feed)
    try:
        values = graph.run_another(proto, names, arrays)
    except Exception:  # both runtimes raise errors of many classes for an input that a node refuses
        return {}
    tensors = {n: as_array(v) for n, v in zip(names, values, strict=True) if not isinstance(v, list) and v is not None}
    return tensors | arrays


def intermediate_shapes(graph: Graph, feed: Mapping[str, object]) -> dict[str, tuple[int, ...]]:
    """The shape of every intermediate value, under the same conditions."""
    return {name: tuple(np.shape(value)) for name, value in intermediate_values(graph, feed).items()}
