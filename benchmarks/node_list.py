"""The node list of an ONNX file as text that two exports of one model share: operators, attributes, dtypes and shapes.

Values are numbered in the order in which they come, and so are the names of sizes: both carry counters that a harmless
change moves. Whole numbers of constants are shown, since they are what an export decides; floats only where there is
one, to six digits: more of them are weights.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import onnx
from onnx import numpy_helper

SHOWN = 64  # values of a constant of whole numbers; of a larger one a digest
_SKIPPED = {onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS}


class Numbers:
    """Names, each as a letter and the number under which it came first."""

    def __init__(self, letter: str) -> None:
        self.letter, self.known = letter, dict[str, str]()

    def __getitem__(self, name: str) -> str:
        return self.known.setdefault(name, f"{self.letter}{len(self.known)}") if name else "-"


class NodeList:
    """The lines of one file, made once. operators: how often each occurs, subgraphs and functions included."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.values, self.sizes, self.operators = Numbers("v"), Numbers("d"), Counter[str]()
        self.types: dict[str, str] = {}
        self.lines = [*self._graph(_inferred(proto).graph)]
        for function in proto.functions:
            self.lines += [f"function {function.name}", *self._nodes(function, "  ")]

    @property
    def order(self) -> str:
        """A digest of the operators, in their order."""
        return digest(line.split("(")[0] for line in self.lines)

    @property
    def all(self) -> str:
        """A digest of everything."""
        return digest(self.lines)

    @property
    def histogram(self) -> str:
        """`Add 3, Gather 2`."""
        return ", ".join(f"{name} {count}" for name, count in sorted(self.operators.items()))

    def _graph(self, graph: Any, indent: str = "") -> Iterator[str]:
        for one in (*graph.input, *graph.value_info, *graph.output):
            self.types[one.name] = self._type(one.type)
        for one in graph.input:
            yield f"{indent}input ({one.name}) {self.values[one.name]} {self.types[one.name]}"
        # In the order of their first use: the order in which a file stores its weights is nobody's.
        stored = {one.name: _tensor(one) for one in graph.initializer}
        for node in graph.node:
            for name in node.input:
                if name in stored:
                    yield f"{indent}stored () {self.values[name]} {stored.pop(name)}"
            yield from self._node(node, indent)
        for one in graph.output:
            yield f"{indent}output ({one.name if not indent else ''}) {self.values[one.name]} {self.types[one.name]}"

    def _nodes(self, part: Any, indent: str) -> Iterator[str]:
        for node in part.node:
            yield from self._node(node, indent)

    def _node(self, node: onnx.NodeProto, indent: str) -> Iterator[str]:
        name = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        self.operators[name] += 1
        given = [self.values[one] for one in node.input]
        given += [
            f"{one.name}={_attribute(one)}"
            for one in sorted(node.attribute, key=lambda one: one.name)
            if one.type not in _SKIPPED
        ]
        made = [f"{self.values[one]} {self.types.get(one, '?')}" for one in node.output]
        yield f"{indent}{name}({', '.join(given)}) {', '.join(made)}"
        for one in sorted(node.attribute, key=lambda one: one.name):
            for graph in (*([one.g] if one.type == onnx.AttributeProto.GRAPH else []), *one.graphs):
                yield f"{indent}  {one.name}:"
                yield from self._graph(graph, indent + "  ")

    def _type(self, proto: onnx.TypeProto) -> str:
        kind = proto.WhichOneof("value")
        if kind != "tensor_type":
            return str(kind)
        tensor = proto.tensor_type
        shape = ",".join(map(self._size, tensor.shape.dim)) if tensor.HasField("shape") else "..."
        return f"{_dtype(tensor.elem_type)}[{shape}]"

    def _size(self, dim: Any) -> str:
        if dim.HasField("dim_value"):
            return str(dim.dim_value)
        # `2*s17 + 1` is a rule of its names.
        return re.sub(r"[A-Za-z_][\w.:/]*", lambda name: self.sizes[name[0]], dim.dim_param) or "?"


def digest(lines: Any) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def _inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    """With the shapes of all values that onnx can tell; as it is where the checker stumbles."""
    try:
        return onnx.shape_inference.infer_shapes(proto)
    except Exception:
        return proto


def _dtype(number: int) -> str:
    return onnx.TensorProto.DataType.Name(number).lower()


def _tensor(tensor: onnx.TensorProto) -> str:
    shown = f"{_dtype(tensor.data_type)}{[*tensor.dims]}"
    if tensor.data_type in (onnx.TensorProto.STRING, onnx.TensorProto.UNDEFINED):
        return shown
    array = numpy_helper.to_array(tensor)
    if array.dtype.kind in "iub":
        values = array.ravel().tolist()
        return f"{shown} {values if len(values) <= SHOWN else digest(map(str, values))}"
    return f"{shown} {float(array.ravel()[0]):.6g}" if array.size == 1 and array.dtype.kind == "f" else shown


def _attribute(attribute: onnx.AttributeProto) -> str:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return _tensor(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if attribute.type == onnx.AttributeProto.FLOATS:
        return str([f"{one:.6g}" for one in value])
    return str(value) if isinstance(value, int) else str([*value])
