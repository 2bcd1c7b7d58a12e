"""Changing an ONNX file in place without reading its weights: `UseDef` says who makes and reads a value."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxpatch.onnxfile.graph import all_nodes, inner_graphs
from onnxpatch.onnxfile.mapped_weights import is_large, take_in, without_weights

if TYPE_CHECKING:
    import numpy as np
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

Size = int | str | None
_SMALL = 4096  # bytes of a stored value that may say a shape


class UseDef:
    """The values of a graph by name, as they are when this is made."""

    def __init__(self, proto: ModelProto) -> None:
        graph = proto.graph
        self._proto, self._inferred = proto, False
        self._makers = {name: node for node in graph.node for name in node.output}
        self._readers = {name: node for node in graph.node for name in node.input}
        self._reads = Counter(name for node in all_nodes(graph) for name in node.input)
        # An output of the graph is read by whoever runs it.
        self._reads.update(one.name for one in graph.output)
        self._types: dict[str, Any] = {}
        self._stored = {one.name: one for one in graph.initializer}
        self._learn((*graph.value_info, *graph.input, *graph.output))

    def maker(self, name: str, op: str) -> NodeProto | None:
        """The node of ONNX's operator `op` that makes a value; None where another one does."""
        node = self._makers.get(name)
        return node if node is not None and node.op_type == op and node.domain in ("", "ai.onnx") else None

    def only_user(self, name: str, op: str) -> NodeProto | None:
        """The node of operator `op` that is all that reads a value."""
        # One reader of each name is kept; the count says whether there are more.
        node = self._readers.get(name)
        return node if self._reads[name] == 1 and node is not None and node.op_type == op else None

    def read_within(self, nodes: Sequence[NodeProto]) -> bool:
        """Whether nothing but these nodes reads what they make, the output of the last left aside."""
        within = Counter(name for node in nodes for name in node.input)
        return all(self._reads[name] == within[name] for node in nodes[:-1] for name in node.output)

    def shape(self, name: str) -> list[Size]:
        """The sizes of a value: numbers, names, None for one that is not known. Empty where nothing is known."""
        if name in self._stored:
            return list(self._stored[name].dims)
        self._infer_for(name)
        known = self._types.get(name)
        dims = known.shape.dim if known is not None and known.HasField("shape") else ()
        return [d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in dims]

    def dtype(self, name: str) -> int:
        """ONNX's number of the dtype of a value; 0 where it is not known."""
        self._infer_for(name)
        return self._types[name].elem_type if name in self._types else 0

    def is_float32(self, name: str) -> bool:
        """Whether a value is known to be of float32."""
        return self.dtype(name) == 1  # onnx.TensorProto.FLOAT

    def scalar(self, name: str) -> float | None:
        """The number that a constant is, or None: other values, and those in a file beside this one."""
        found = self._constant(name)
        return float(found.reshape(())) if found is not None and found.shape in ((), (1,)) else None

    def numbers(self, name: str) -> list[int] | None:
        """The whole numbers that a constant of one dimension is, or None."""
        found = self._constant(name)
        return (
            [int(one) for one in found] if found is not None and found.ndim == 1 and found.dtype.kind == "i" else None
        )

    def _constant(self, name: str) -> np.ndarray[Any, Any] | None:
        import onnx

        made = self._makers.get(name)
        stored: TensorProto | None = self._stored.get(name)
        if made is not None and made.op_type == "Constant":
            stored = next((one.t for one in made.attribute if one.name == "value"), None)
        if stored is None or stored.data_location == onnx.TensorProto.EXTERNAL or stored.ByteSize() > _SMALL:
            return None
        return onnx.numpy_helper.to_array(stored)

    def _learn(self, values: Sequence[Any]) -> None:
        for one in values:
            self._types.setdefault(one.name, one.type.tensor_type)

    def _infer_for(self, name: str) -> None:
        """Let onnx infer the shapes, once, if the file says nothing of this value: the trace exporter writes none."""
        if name in self._types or self._inferred:
            return
        self._inferred = True
        self._learn(_inferred(self._proto))


def _inferred(proto: ModelProto) -> Sequence[Any]:
    """What onnx infers for the values inside the graph. It gets the weights' shapes, not the weights."""
    import onnx

    slim = onnx.ModelProto(ir_version=proto.ir_version)
    slim.opset_import.extend(proto.opset_import)
    slim.functions.extend(proto.functions)
    slim.graph.name = proto.graph.name
    slim.graph.input.extend(proto.graph.input)
    slim.graph.node.extend(proto.graph.node)
    slim.graph.output.extend(proto.graph.output)
    for one in proto.graph.initializer:
        if one.ByteSize() <= _SMALL and one.data_location != onnx.TensorProto.EXTERNAL:
            slim.graph.initializer.append(one)
        else:
            slim.graph.input.append(onnx.helper.make_tensor_value_info(one.name, one.data_type, one.dims))
    try:
        # data_prop: the sizes that a Reshape is given are values of the graph.
        found: Sequence[Any] = onnx.shape_inference.infer_shapes(slim, data_prop=True).graph.value_info
    except Exception:  # a graph that onnx cannot judge is left as it is
        return ()
    return found


def stored_once(proto: ModelProto, name: str, numbers: Sequence[float], dims: Sequence[int] = ()) -> str:
    """The name of a constant of float32, which is put into the file once."""
    import onnx

    if all(one.name != name for one in proto.graph.initializer):
        proto.graph.initializer.append(onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT, dims, numbers))
    return name


def permutation(node: NodeProto) -> list[int]:
    """The order of axes of a Transpose."""
    return next((list(one.ints) for one in node.attribute if one.name == "perm"), [])


def drop_unread(graph: GraphProto) -> None:
    """Take out nodes that nothing reads any more, and what is said or stored for their values alone."""
    wanted = {one.name for one in graph.output}
    kept: list[NodeProto] = []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(_read_by(node))
    left = {name for node in kept for name in node.output}
    dropped = [node for node in graph.node if not left.intersection(node.output)]
    gone = {name for node in dropped for name in node.output}
    idle = {name for node in dropped for name in node.input} - wanted - {one.name for one in graph.input}
    _drop(graph.value_info, gone)
    _drop(graph.initializer, idle)
    _set_nodes(graph, reversed(kept))


def rewrite(graph: GraphProto, written: Callable[[NodeProto], Sequence[NodeProto]]) -> int:
    """Put the nodes that `written` gives for a node in its place, where it gives any. Returns how often it does."""
    found = [(node, written(node)) for node in graph.node]
    _set_nodes(graph, (one for node, new in found for one in new or (node,)))
    return sum(bool(new) for _, new in found)


def _set_nodes(graph: GraphProto, nodes: Iterable[NodeProto]) -> None:
    kept = list(nodes)
    del graph.node[:]
    graph.node.extend(kept)


def _drop(repeated: Any, names: set[str]) -> None:
    for place in reversed(range(len(repeated))):
        if repeated[place].name in names:
            del repeated[place]


def _read_by(node: NodeProto) -> set[str]:
    """The values that a node and its inner graphs read."""
    within = (one for graph in inner_graphs(node) for one in all_nodes(graph))
    return {name for one in (node, *within) for name in one.input}


def mentions(file: str | os.PathLike[str], operators: Iterable[str]) -> bool:
    """Whether the bytes have the name of one of these operators, as every writer of protobuf puts it."""
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return any(content.find(b'"' + bytes([len(op)]) + op.encode()) >= 0 for op in operators)


@contextlib.contextmanager
def edited(file: str | os.PathLike[str]) -> Iterator[ModelProto]:
    """Gives the block the file's ModelProto to change; writes it back at the end, but not if the block raises.

    Weights in a file beside it (external data) are neither read nor written.
    """
    import onnx

    if is_large(file):
        path = Path(file)
        proto, small = onnx.load_from_string(without_weights(path)), path.with_name(f"{path.name}.edited")
        yield proto
        small.write_bytes(proto.SerializeToString())
        # The weights go from the old file into the new one, a piece at a time, and the new one takes its name.
        take_in(small, path.name)
        os.replace(small, path)
        return
    proto = onnx.load(os.fspath(file), load_external_data=False)
    yield proto
    onnx.save(proto, os.fspath(file))
