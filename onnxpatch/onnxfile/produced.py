"""Which node makes a value of a graph, which nodes read it, and what the file says of its shape."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from onnxpatch.onnxfile.graph import all_nodes

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

Size = int | str | None


class Produced:
    """The values of a graph by name, as they are when this is made."""

    def __init__(self, graph: GraphProto) -> None:
        self._makers = {name: node for node in graph.node for name in node.output}
        self._readers = {name: node for node in graph.node for name in node.input}
        self._reads = Counter(name for node in all_nodes(graph) for name in node.input)
        # An output of the graph is read by whoever runs it.
        self._reads.update(one.name for one in graph.output)
        self._types = {one.name: one.type.tensor_type for one in (*graph.value_info, *graph.input, *graph.output)}
        self._stored = {one.name: one for one in graph.initializer}

    def maker(self, name: str, op: str) -> NodeProto | None:
        """The node of ONNX's operator `op` that makes a value; None where another one does."""
        node = self._makers.get(name)
        return node if node is not None and node.op_type == op and node.domain in ("", "ai.onnx") else None

    def only_user(self, name: str, op: str) -> NodeProto | None:
        """The node of operator `op` that is all that reads a value."""
        node = self._readers.get(name)
        return node if self._reads[name] == 1 and node is not None and node.op_type == op else None

    def shape(self, name: str) -> list[Size]:
        """The sizes of a value: numbers, names, None for one that is not known. Empty where nothing is said."""
        known = self._types.get(name)
        dims = known.shape.dim if known is not None and known.HasField("shape") else ()
        return [d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in dims]

    def is_float32(self, name: str) -> bool:
        """Whether the file says that a value is of float32."""
        return name in self._types and self._types[name].elem_type == 1  # onnx.TensorProto.FLOAT

    def scalar(self, name: str) -> float | None:
        """The number that a stored value is, or None: other values, and those in a file beside this one."""
        import onnx

        stored = self._stored.get(name)
        if stored is None or list(stored.dims) not in ([], [1]) or stored.data_location == onnx.TensorProto.EXTERNAL:
            return None
        return float(onnx.numpy_helper.to_array(stored).reshape(()))


def permutation(node: NodeProto) -> list[int]:
    """The order of axes of a Transpose."""
    return next((list(one.ints) for one in node.attribute if one.name == "perm"), [])
