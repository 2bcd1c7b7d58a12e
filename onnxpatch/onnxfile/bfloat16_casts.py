"""Computes in float32 what onnxruntime's CPU has no bfloat16 kernel for.

MatMul(x, w)      becomes      Cast(MatMul(Cast(x), Cast(w)))

The values between nodes stay bfloat16, and so do weights, inputs and outputs. Every result is rounded to bfloat16, as
torch's own CPU kernels do, which compute in float32 too.
"""

from __future__ import annotations

import itertools
import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from onnxpatch.onnxfile.bfloat16 import BFLOAT16
from onnxpatch.onnxfile.graph import all_nodes
from onnxpatch.onnxfile.runtime import load_graph
from onnxpatch.onnxfile.unread import edited

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

_FLOAT, _COMPLEX = 1, {14, 15}
_LARGE = 16 << 20
# What moves values without a look at them, and what has other graphs inside: for these there are kernels.
_MOVES = {
    "Cast", "CastLike", "Concat", "Constant", "ConstantOfShape", "Flatten", "Gather", "GatherElements", "GatherND",
    "Identity", "If", "Loop", "Reshape", "Scan", "ScatterElements", "ScatterND", "SequenceAt", "SequenceConstruct",
    "SequenceEmpty", "SequenceInsert", "SequenceLength", "ConcatFromSequence", "Shape", "Slice", "Split",
    "SplitToSequence", "Squeeze", "Transpose", "Unsqueeze",
}  # fmt: skip


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
        return _cast(proto.graph, _types(proto), itertools.count())


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


def _types(proto: ModelProto) -> dict[str, int]:
    """The dtype of every value that has one, those of inner graphs too, whose names are their own."""
    import onnx

    inferred = onnx.shape_inference.infer_shapes(proto)
    found: dict[str, int] = {}

    def read(graph: GraphProto) -> None:
        found.update({one.name: one.data_type for one in graph.initializer})
        for value in (*graph.input, *graph.output, *graph.value_info):
            found[value.name] = value.type.tensor_type.elem_type
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    read(attribute.g)

    read(inferred.graph)
    return found


def _cast(graph: GraphProto, types: dict[str, int], numbers: Iterator[int]) -> int:
    done, nodes = 0, list(graph.node)
    wide: dict[str, str] = {}  # by the name of a bfloat16 value: that of its float32
    made: list[NodeProto] = []
    for node in nodes:
        done += sum(_cast(one.g, types, numbers) for one in node.attribute if one.HasField("g"))
        narrow = {name for name in (*node.input, *node.output) if types.get(name) == BFLOAT16}
        if node.op_type in _MOVES or not narrow:
            made.append(node)
        else:
            made += _in_float32(node, narrow, wide, numbers)
            done += 1
    del graph.node[:]
    graph.node.extend(made)
    return done


def _in_float32(node: NodeProto, narrow: set[str], wide: dict[str, str], numbers: Iterator[int]) -> list[NodeProto]:
    """The node on float32, with a Cast for each of its bfloat16 values. wide: those that have one already."""
    from onnx import helper

    before, after = [], []
    for place, name in enumerate(node.input):
        if name in narrow:
            if name not in wide:
                wide[name] = f"{name}_float32_{next(numbers)}"  # an inner graph may have its own
                before.append(helper.make_node("Cast", [name], [wide[name]], f"{wide[name]}_cast", to=_FLOAT))
            node.input[place] = wide[name]
    for attribute in node.attribute:  # of RandomNormal, EyeLike
        if attribute.name == "dtype" and attribute.i == BFLOAT16:
            attribute.i = _FLOAT
    for place, name in enumerate(node.output):
        if name in narrow:
            node.output[place] = f"{name}_in_float32"
            after.append(helper.make_node("Cast", [node.output[place]], [name], f"{name}_rounded", to=BFLOAT16))
    return [*before, node, *after]
