"""Operators of which onnxruntime computes other values than eager, written with those that it computes right.

    Max(x, y) of int64     Where(Greater(x, y), x, y)
    ReduceMax(x)           GatherElements(x, ArgMax(x)), axis by axis
    Log(Sigmoid(x))        Log(Reciprocal(1 + Exp(-x)))      also behind a Clip, a sum, a product
    MaxPool(Pad(x))        with -0.0 in place of 0

Of two int64 whose upper halves are equal onnxruntime's Max, Min, Clip, Relu, Sign, ReduceMax and ReduceMin compare the
lower halves with their signs, as Eigen does without SSE 4.2: to them 2**31 is less than 1. Its comparisons are right.
Extremes of sizes, positions and flags are left as they are: smaller, and right below 2**31.

onnxruntime's Sigmoid of float32 has an error of 1e-7, and is 0 below -18: its logarithm is off by 1 at -17, and -inf at
-18. Eager's is right down to -88. The form takes three times as long, so that other Sigmoids stay.

onnxruntime makes zeros around a MaxPool's input pads of the MaxPool, which are less than every number: where all of a
window is negative, the result is wrong (https://github.com/microsoft/onnxruntime/pull/18136). It leaves -0.0.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxpatch.onnxfile.editing import UseDef, edited, rewrite
from onnxpatch.onnxfile.graph import all_graphs, inner_graphs
from onnxpatch.onnxfile.runtime import load_graph
from onnxpatch.onnxfile.runtime_forms import value_types

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

_INT64, _BOOL = 7, 9
_FLOATS = (1, 10, 11)  # float32, float16, float64
EXTREMES = ("Max", "Min", "Clip", "Relu", "Sign", "ReduceMax", "ReduceMin")
# What these make is no data of 2**31.
_SMALL = {
    "And", "ArgMax", "ArgMin", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "NonZero",
    "Not", "OneHot", "Or", "Shape", "Size", "Xor",
}  # fmt: skip
# The second input says where to, or how many. What is scattered, or padded with, is the third.
_BY_POSITIONS = {
    "CumSum", "Expand", "Gather", "GatherElements", "GatherND", "Pad", "Reshape", "Resize", "ScatterElements",
    "ScatterND", "Slice", "Split", "Squeeze", "Tile", "TopK", "Unsqueeze",
}  # fmt: skip

_HANDS_ON = {"Add", "Clip", "Concat", "Gather", "Identity", "Max", "Min", "Mul", "Reshape", "Slice", "Sub", "Transpose"}


# ------------------------------------------------------------------ extremes of int64 data
def compare_extremes(file: str | os.PathLike[str]) -> int:
    """Change a file in place; returns how many nodes were written as comparisons."""
    # What the file says at once may be too much; the dtype of every value is a second's work for a large one.
    proto, count = load_graph(Path(file)), 0
    if not _found(proto, None) or not _found(proto, types := value_types(proto)):
        return 0
    with edited(file) as proto:
        constants = UseDef(proto)
        for graph, names in _found(proto, types):
            count += rewrite(graph, functools.partial(_written, names, constants))
    return count


def _found(proto: ModelProto, types: dict[str, int] | None) -> list[tuple[GraphProto, set[str]]]:
    walk = _Walk(types)
    walk.through(proto.graph)
    return walk.found


class _Walk:
    """Goes through a graph, and those inside it, for extremes of int64 data.

    types: the dtype of every value; None where it may find too many. data: the values that depend on the inputs'.
    wholes: those of int64. found: the outputs of the nodes, by graph.
    """

    def __init__(self, types: dict[str, int] | None) -> None:
        self.types = types
        self.data: set[str] = set()
        self.wholes: set[str] = set()
        self.found: list[tuple[GraphProto, set[str]]] = []

    def through(self, graph: GraphProto) -> None:
        stored = {one.name for one in graph.initializer}
        for value in graph.input:
            if value.name not in stored:
                self._learn([value.name], value.type.tensor_type.elem_type == _INT64)
        names = {node.output[0] for node in graph.node if self._is_extreme(node)}
        if names:
            self.found.append((graph, names))

    def _is_extreme(self, node: NodeProto) -> bool:
        """Whether it is one of int64 data; learns what the node makes."""
        read = set(node.input[::2] if node.op_type in _BY_POSITIONS else node.input)
        for inner in inner_graphs(node):
            self.through(inner)
            read.update(one.name for one in inner.output)
        if node.op_type in _SMALL or not read & self.data:
            return False
        whole = bool(read & self.wholes)
        if node.op_type == "Cast":
            to = next(one.i for one in node.attribute if one.name == "to")
            whole = to == _INT64 and not self._is(node.input[0], _BOOL, False)
        self._learn(node.output, whole)
        return whole and node.op_type in EXTREMES and self._is(node.input[0], _INT64, True)

    def _learn(self, names: Iterable[str], whole: bool) -> None:
        self.data.update(names)
        if whole:
            self.wholes.update(names)

    def _is(self, name: str, dtype: int, unknown: bool) -> bool:
        return unknown if self.types is None else self.types.get(name) == dtype


def _written(names: set[str], constants: UseDef, node: NodeProto) -> list[NodeProto]:
    """The nodes in place of one of `names`; none for others, and where it reduces over axes that are not known."""
    if node.output[0] not in names:
        return []
    new = _Compared(node)
    if node.op_type.startswith("Reduce"):
        new.reduced(constants)
    elif node.op_type == "Sign":
        zero = new.number(0)
        new.add("Sub", *(new.add("Cast", new.add(op, node.input[0], zero), to=_INT64) for op in ("Greater", "Less")))
    elif node.op_type == "Clip":
        least, most = (*node.input[1:], "", "")[:2]
        first = new.pick("Greater", node.input[0], least) if least else node.input[0]
        new.pick("Less", first, most) if most else None
    else:
        first, *others = node.input if node.op_type != "Relu" else (node.input[0], new.number(0))
        for other in others:
            first = new.pick("Less" if node.op_type == "Min" else "Greater", first, other)
    return new.named()


class _NewNodes:
    """New nodes in place of an old one, which bear the name of its output, and its module."""

    def __init__(self, old: NodeProto) -> None:
        self.old, self.made = old, list[Any]()

    def add(self, op: str, *given: str, **attributes: Any) -> str:
        """A node's result."""
        from onnx import helper

        name = f"{self.old.output[0]}_{op}_{len(self.made)}"
        self.made.append(helper.make_node(op, given, [name], name, **attributes))
        self.made[-1].metadata_props.extend(self.old.metadata_props)
        return name

    def number(self, *values: float, shape: Sequence[int] = ()) -> str:
        """A constant of int64, or of float32."""
        from onnx import TensorProto, helper

        dtype = TensorProto.FLOAT if isinstance(values[0], float) else TensorProto.INT64
        return self.add("Constant", value=helper.make_tensor("", dtype, shape, values))

    def named(self) -> list[NodeProto]:
        """The nodes, of which the last one makes what the old one made."""
        if self.made:
            self.made[-1].output[0] = self.old.output[0]
        return self.made


class _Compared(_NewNodes):
    """Comparisons in place of an extreme."""

    def pick(self, comparison: str, x: str, y: str) -> str:
        return self.add("Where", self.add(comparison, x, y), x, y)

    def reduced(self, constants: UseDef) -> None:
        """By the places of the extremes."""
        given, name = {one.name: one for one in self.old.attribute}, self.old.input[0]
        second = next(iter(self.old.input[1:]), "")
        axes = list(given["axes"].ints) if "axes" in given else constants.numbers(second) if second else []
        kept = given["keepdims"].i if "keepdims" in given else 1
        nothing = "noop_with_empty_axes" in given and given["noop_with_empty_axes"].i
        if axes is None or (not axes and (kept or nothing)):
            return
        if not axes:
            name, axes = self.add("Reshape", name, self.number(-1, shape=[1])), [0]
        for axis in axes:
            at = self.add(self.old.op_type.replace("Reduce", "Arg"), name, axis=axis)
            name = self.add("GatherElements", name, at, axis=axis)
        if not kept:
            self.add("Squeeze", name, self.number(*axes, shape=[len(axes)]))


# ------------------------------------------------------------------ sigmoids below a logarithm
def write_small_sigmoids(file: str | os.PathLike[str]) -> int:
    """Change a file in place; returns how many nodes were written so."""
    with edited(file) as proto:
        known = UseDef(proto)

        def written(node: NodeProto) -> list[NodeProto]:
            return _spelled_out(node) if node.output[0] in wanted and known.is_float32(node.output[0]) else []

        count = 0
        for graph in all_graphs(proto.graph):
            wanted = _below_logarithms(graph)
            count += rewrite(graph, written)
        return count


def _below_logarithms(graph: GraphProto) -> set[str]:
    """The values that Sigmoid makes and a logarithm reads, at once or through what keeps a value small."""
    makers = {name: node for node in graph.node for name in node.output}
    pending = [name for node in graph.node if node.op_type == "Log" for name in node.input]
    seen, found = set[str](), set[str]()
    while pending:
        node = makers.get(name := pending.pop())
        if node is None or name in seen:
            continue
        seen.add(name)
        if node.op_type == "Sigmoid":
            found.add(name)
        elif node.op_type in _HANDS_ON:
            pending += node.input
    return found


def _spelled_out(node: NodeProto) -> list[NodeProto]:
    new = _NewNodes(node)
    above = new.add("Exp", new.add("Neg", node.input[0]))
    new.add("Reciprocal", new.add("Add", above, new.number(1.0)))
    return new.named()


# ------------------------------------------------------------------ zeros around what MaxPool reads
def keep_zero_pads(file: str | os.PathLike[str]) -> int:
    """Change a file in place; returns how many Pads there are. Behind a Relu nothing is less than zero."""
    from onnx import helper

    count = 0
    with edited(file) as proto:
        known = UseDef(proto)
        for node in proto.graph.node:
            modes = [one.s for one in node.attribute if one.name == "mode"]
            if node.op_type != "Pad" or modes not in ([], [b"constant"]) or known.maker(node.input[0], "Relu"):
                continue
            value = node.input[2] if len(node.input) > 2 else ""
            if known.only_user(node.output[0], "MaxPool") is None or (value and known.scalar(value) != 0):
                continue
            if (dtype := known.dtype(node.output[0])) in _FLOATS:
                name = f"{node.output[0]}_value"
                proto.graph.initializer.append(helper.make_tensor(name, dtype, [], [-0.0]))
                node.input[:] = [*node.input[:2], name, *node.input[3:]]
                count += 1
    return count
