"""Rewrites what a runtime refuses, or does not run as ONNX defines it.

    empty weights          as nodes      OpenVINO reads such a constant as one with an element. A transformer without
                                         class tokens has one, (1, 0, 32). onnxruntime folds the node again
    names of sizes         left out      where they do not hold at every size: `_merges`
    bfloat16 on the CPU    in float32    MatMul(x, w) becomes Cast(MatMul(Cast(x), Cast(w)))
    an operator's float64  in float32    the same, of Erf, InstanceNormalization, ...: where the runtime names it
    its int8 or int16      in int32      of Where, Max, CumSum, MatMul, ...: the result wraps around as in int16
    x[:, a:b] of int32     in int64      where a is int32 and b int64, since the ends of a Slice have one dtype
    layer_norm(x.half())   in float32    where its weights are in float32, as in torch.autocast
    x.flatten(-2)          with a number where the sizes behind are known: of no elements, -1 is no size in particular
    reshape(y.shape)       with allowzero: in a Reshape, 0 is "the size that it had", and y may have no element
    rotary tables          expanded      RotaryEmbedding takes (batch, length, half), and onnxscript's rule gives it
                                         what the model has: (1, length, half)

`up(down(x)) + x` adds sizes 2*((n - 1)//2) + 2 and n. The dynamo exporter takes them for equal and calls all that
follows by one of the two. Eager accepts n = 1, where x is broadcast, and there the names are false. onnxruntime shares
memory between values that are called alike, and refuses to run ("Shape mismatch attempting to re-use buffer").
Without these names it finds the sizes while it runs.

Of bfloat16, the values between nodes stay what they are, and so do weights, inputs and outputs. Every result is rounded
to bfloat16, as torch's own CPU kernels do, which compute in float32 too.
"""

from __future__ import annotations

import itertools
import math
import mmap
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from onnxpatch.onnxfile.editing import UseDef, edited, rewrite
from onnxpatch.onnxfile.graph import all_graphs, all_nodes
from onnxpatch.onnxfile.runtime import load_graph
from onnxpatch.onnxfile.runtimes.interface import BFLOAT16

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

_BROADCASTING = frozenset({
    "Add", "Sub", "Mul", "Div", "Mod", "Pow", "PRelu", "Min", "Max", "Sum", "Mean", "And", "Or", "Xor", "Equal",
    "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Where", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
    "BitShift",
})  # fmt: skip
Shape = tuple["int | str", ...]
_LARGE = 16 << 20
_FLOAT, _INT64, _FLOAT16, _FLOAT64, _COMPLEX = 1, 7, 10, 11, {14, 15}
_NO_KERNEL = re.compile(
    r"Could not find an implementation for (\w+)\(|type is not supported with (\w+) |(\w+) operator does not support "
    r"|Type 'tensor\(u?int(?:8|16)\)' of input parameter \S+ of operator \((\w+)\)"
)
# Dtypes of which operators lack kernels, uint8, int8, uint16 and int16 among them, and the wider one for each.
_WIDER = ({_FLOAT16, _FLOAT64}, _FLOAT, "float32"), ({2, 3, 4, 5}, 6, "int32")
_TWO_DTYPES = re.compile(r"Type parameter \((T|Tind)\) of Optype \((\w+)\) bound to different types")
# The node that onnxruntime names of one that it writes out for such dtypes.
_WRITTEN_OUT = {"Where": "Clip", "Max": "Relu"}
# What moves values without a look at them, and what has other graphs inside: for these there are kernels.
_MOVES = {
    "Cast", "CastLike", "Concat", "Constant", "ConstantOfShape", "Flatten", "Gather", "GatherElements", "GatherND",
    "Identity", "If", "Loop", "Reshape", "Scan", "ScatterElements", "ScatterND", "SequenceAt", "SequenceConstruct",
    "SequenceEmpty", "SequenceInsert", "SequenceLength", "ConcatFromSequence", "Shape", "Slice", "Split",
    "SplitToSequence", "Squeeze", "Transpose", "Unsqueeze",
}  # fmt: skip


def write_as_nodes(file: str | os.PathLike[str]) -> None:
    """Replace every weight of two dimensions or more that has no element by a ConstantOfShape."""
    import onnx

    with edited(file) as proto:
        graph = proto.graph
        empty = [one for one in graph.initializer if len(one.dims) > 1 and 0 in one.dims]
        for one in reversed(empty):
            graph.initializer.remove(one)
            sizes = onnx.helper.make_tensor("", onnx.TensorProto.INT64, [len(one.dims)], one.dims)
            shape = f"{one.name}_shape"
            filling = onnx.helper.make_tensor("", one.data_type, [1], [0])
            made = onnx.helper.make_node("ConstantOfShape", [shape], [one.name], name=f"{one.name}_made", value=filling)
            # In front: any node may read it.
            graph.node.insert(0, made)
            graph.node.insert(0, onnx.helper.make_node("Constant", [], [shape], name=shape, value=sizes))


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
        if len(kept) == len(graph.value_info):  # forgotten before: the file is as it was
            return False
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


def compute_in_float32(file: str | os.PathLike[str], tensors: Iterable[torch.Tensor] = ()) -> int:
    """Put casts around every node of bfloat16 that has no kernel. Returns how many nodes these are.

    tensors: the weights and inputs that the file was made from. Where none of them is bfloat16 and nothing is cast to
    it, a file of many megabytes is not parsed.
    """
    given = {one.dtype for one in tensors}
    if os.path.getsize(file) > _LARGE and given and torch.bfloat16 not in given and not _casts_to_it(file):
        return 0
    if not _mentions(load_graph(Path(file))):
        return 0
    with edited(file) as proto:
        _repair_numbers(proto)
        return _cast(proto, {BFLOAT16})


def expand_rotary_tables(file: str | os.PathLike[str]) -> None:
    """Give each RotaryEmbedding without places its cosines and sines for every row of the batch.

    onnxscript writes `x * cos + rotate_half(x) * sin` as this operator, from opset 23 on. Models make their tables for
    one row and let it broadcast, which the operator does not.
    """
    from onnx import helper

    def written(node: NodeProto) -> list[NodeProto]:
        if node.op_type != "RotaryEmbedding" or node.domain not in ("", "ai.onnx") or any(node.input[3:]):
            return []
        batch, ones, sizes = (f"{node.output[0]}_{what}" for what in ("batch", "ones", "sizes"))
        made = [
            helper.make_node("Shape", [node.input[0]], [batch], batch, end=1),
            helper.make_node("Constant", [], [ones], ones, value_ints=[1, 1]),
            helper.make_node("Concat", [batch, ones], [sizes], sizes, axis=0),
        ]
        for place in (1, 2):
            table = f"{node.output[0]}_table_{place}"
            made.append(helper.make_node("Expand", [node.input[place], sizes], [table], table))
            node.input[place] = table
        return [*made, node]

    with edited(file) as proto:
        for graph in all_graphs(proto.graph):
            rewrite(graph, written)


def reshape_no_elements(file: str | os.PathLike[str], said: str) -> int:
    """Write Reshapes so that they take a tensor without elements, as eager does.

    x.flatten(k) has a number for the size that it makes, where onnx infers the sizes from k on: exporters write -1,
    and no runtime knows which size that is. Where all sizes are read off tensors, 0 is a size, and not "as it was".
    said: the runtime's error, which names a Reshape. Returns how many there are.
    """
    import numpy as np
    from onnx import helper, numpy_helper

    if "reshape" not in said.lower():
        return 0
    count = 0
    with edited(file) as proto:
        made = UseDef(proto)
        known = UseDef(_with_gathers(proto, made))
        for node in proto.graph.node:
            target = made.maker(node.input[1], "Concat") if node.op_type == "Reshape" else None
            size = _flattened(made, known, node.input[0], list(target.input)) if target is not None else None
            if target is not None and size:
                target.input[1] = f"{target.output[0]}_size"
                proto.graph.initializer.append(numpy_helper.from_array(np.array([size]), target.input[1]))
                count += 1
            elif target is not None and not any(one.i for one in node.attribute) and _read_off(made, node.input[1]):
                del node.attribute[:]  # allowzero is the only one that there is
                node.attribute.append(helper.make_attribute("allowzero", 1))
                count += 1
    return count


def _read_off(made: UseDef, name: str) -> bool:
    """Whether sizes are those of tensors, moved at most, and numbers above 0."""
    fixed = made.numbers(name)
    if fixed is not None or made.maker(name, "Shape"):
        return min(fixed or [1]) > 0
    parts = made.maker(name, "Concat")
    if parts is not None:
        return all(_read_off(made, one) for one in parts.input)
    moved = made.maker(name, "Slice") or made.maker(name, "Gather") or made.maker(name, "Unsqueeze")
    return moved is not None and _read_off(made, moved.input[0])


def _flattened(made: UseDef, known: UseDef, x: str, target: Sequence[str]) -> int | None:
    """The product of the sizes of x behind the first, where a Reshape's target is those as they are, and -1."""
    if len(target) != 2 or made.numbers(target[1]) != [-1]:
        return None
    cut = made.maker(target[0], "Slice")
    read = made.maker(cut.input[0] if cut is not None else target[0], "Shape")
    start = made.numbers(cut.input[1]) if cut is not None else [0]
    kept, shape = known.shape(target[0]), known.shape(x)
    if read is None or start != [0] or len(kept) != 1 or not isinstance(kept[0], int):
        return None
    behind, alike = shape[kept[0] :], known.shape(read.input[0])[: kept[0]]
    same = read.input[0] == x or (alike == shape[: kept[0]] and None not in alike)
    sizes = [size for size in behind if isinstance(size, int)]
    return math.prod(sizes) if same and len(sizes) == len(behind) > 0 else None


def _with_gathers(proto: ModelProto, made: UseDef) -> ModelProto:
    """A copy that onnx infers more sizes in: of a Slice with ends that it does not know, it infers none of any axis."""
    from onnx import ModelProto, TensorProto, helper

    copy = ModelProto()
    copy.CopyFrom(proto)

    def written(node: NodeProto) -> list[NodeProto]:
        axes = made.numbers(node.input[3]) if node.op_type == "Slice" and len(node.input) > 3 else None
        if axes is None or len(axes) != 1 or all(made.numbers(end) for end in node.input[1:3]):
            return []
        places = f"{node.output[0]}_places"
        copy.graph.input.append(helper.make_tensor_value_info(places, TensorProto.INT64, [None]))
        return [helper.make_node("Gather", [node.input[0], places], node.output, axis=axes[0])]

    rewrite(copy.graph, written)
    return copy


def cast_what_is_refused(file: str | os.PathLike[str], said: str) -> str:
    """Put casts around what onnxruntime refuses for its dtype: an operator without a kernel for float64, float16 or
    small whole numbers, or one whose places are of two dtypes.

    said: the runtime's error. Returns what was done, for a note; "" where the error is another one.
    """
    said = " ".join(said.split())
    mixed = _TWO_DTYPES.search(said)
    if mixed and mixed[1] == "Tind":
        with edited(file) as proto:
            count = _in_one_dtype(proto, mixed[2], _INT64, first=1)
        return f"{mixed[2]} takes int64 places, which were of two dtypes; nodes: {count}" if count else ""
    if mixed:
        with edited(file) as proto:
            count = _in_one_dtype(proto, mixed[2], _FLOAT64)
        if count:
            return f"{mixed[2]} in float64, since its inputs had two dtypes: {count} nodes"
        return _in_wider(file, mixed[2], "its inputs had two dtypes")
    missing = _NO_KERNEL.search(said)
    op = next(filter(None, missing.groups())) if missing else ""
    return _in_wider(file, op, "onnxruntime's CPU has no kernel for its dtype") if op else ""


def _in_wider(file: str | os.PathLike[str], op: str, why: str) -> str:
    with edited(file) as proto:
        for kinds, to, named in _WIDER:
            if count := _cast(proto, kinds, {op, _WRITTEN_OUT.get(op, op)}, to):
                return f"{op} in {named}, since {why}: {count} nodes"
    return ""


def _in_one_dtype(proto: ModelProto, op: str, to: int, first: int = 0) -> int:
    """Put a Cast before the inputs of such nodes, from the `first` on, that are not of this dtype: int64, or float64
    where another input is."""
    from onnx import helper

    types = value_types(proto)

    def written(node: NodeProto) -> list[NodeProto]:
        before = []
        kinds = [types.get(name) for name in node.input]
        taken = node.op_type == op and (to == _INT64 or to in kinds)
        for place, name in enumerate(node.input) if taken else ():
            if place >= first and name and kinds[place] != to and (to == _INT64 or kinds[place] == _FLOAT):
                node.input[place] = f"{node.output[0]}_place_{place}"
                before.append(helper.make_node("Cast", [name], [node.input[place]], node.input[place], to=to))
        return [*before, node] if before else []

    return sum(rewrite(graph, written) for graph in all_graphs(proto.graph))


def _casts_to_it(file: str | os.PathLike[str]) -> bool:
    """Whether the bytes have the attribute `to` with bfloat16, as every writer of protobuf puts it."""
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(b"\x0a\x02to\x18" + bytes([BFLOAT16])) >= 0


def _mentions(proto: ModelProto) -> bool:
    graph = proto.graph
    if any(value.type.tensor_type.elem_type == BFLOAT16 for value in (*graph.input, *graph.output)):
        return True
    return any(one.data_type == BFLOAT16 for one in graph.initializer) or any(
        _target(node) == BFLOAT16 for node in all_nodes(graph)
    )


def _target(node: NodeProto) -> int | None:
    return next((one.i for one in node.attribute if one.name == "to"), None) if node.op_type == "Cast" else None


def _repair_numbers(proto: ModelProto) -> None:
    """The TorchScript exporter casts a number beside bfloat16, such as a size, to a complex dtype: no bfloat16 is among
    the dtypes that it promotes."""
    for node in all_nodes(proto.graph):
        if _target(node) in _COMPLEX:
            next(one for one in node.attribute if one.name == "to").i = BFLOAT16


def value_types(proto: ModelProto) -> dict[str, int]:
    """The dtype of every value that has one, those of inner graphs too, whose names are their own."""
    import onnx

    inferred = onnx.shape_inference.infer_shapes(proto)
    found: dict[str, int] = {}
    for graph in all_graphs(inferred.graph):
        found.update({one.name: one.data_type for one in graph.initializer})
        for value in (*graph.input, *graph.output, *graph.value_info):
            found[value.name] = value.type.tensor_type.elem_type
    return found


def _cast(proto: ModelProto, kinds: Collection[int], ops: Collection[str] = (), to: int = _FLOAT) -> int:
    """Compute nodes of these dtypes in a wider one: those of some operators, or all."""
    types, numbers = value_types(proto), itertools.count()

    def written(node: NodeProto) -> list[NodeProto]:
        values = (*node.input, *node.output) if not ops or node.op_type in ops else ()
        narrow = {name: types[name] for name in values if types.get(name) in kinds}
        adds = any(one.name == "reduction" and one.s != b"none" for one in node.attribute)
        moves = node.op_type in _MOVES and not adds
        return [] if moves or not narrow else _widened(node, narrow, to, wide, numbers)

    count = 0
    for graph in all_graphs(proto.graph):
        wide: dict[str, str] = {}  # by the name of a value: that of its wider one
        count += rewrite(graph, written)
    return count


def _widened(
    node: NodeProto, narrow: dict[str, int], to: int, wide: dict[str, str], numbers: Iterator[int]
) -> list[NodeProto]:
    """The node in a wider dtype, with a Cast for each of its values in `narrow`. wide: those that have one already."""
    from onnx import helper

    before, after = [], []
    for place, name in enumerate(node.input):
        if name in narrow:
            if name not in wide:
                # An inner graph may have its own, and so may each operator that is cast later.
                wide[name] = f"{name}_wide_{node.op_type}_{next(numbers)}"
                before.append(helper.make_node("Cast", [name], [wide[name]], f"{wide[name]}_cast", to=to))
            node.input[place] = wide[name]
    for attribute in node.attribute:  # of RandomNormal, EyeLike
        if attribute.name == "dtype" and attribute.i in narrow.values():
            attribute.i = to
    for place, name in enumerate(node.output):
        if name in narrow:
            node.output[place] = f"{name}_wide"
            after.append(helper.make_node("Cast", [node.output[place]], [name], f"{name}_rounded", to=narrow[name]))
    return [*before, node, *after]
