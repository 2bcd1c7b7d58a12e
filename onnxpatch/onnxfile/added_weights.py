"""What the TorchScript exporter's file still needs: weights, outputs as wide as the model's, names of sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import onnx
import torch

from onnxpatch.onnxfile import output_structure
from onnxpatch.onnxfile.bfloat16 import BFLOAT16
from onnxpatch.onnxfile.mapped_weights import MOST_IN_ONE_FILE, take_in
from onnxpatch.onnxfile.unread import edited

if TYPE_CHECKING:
    from onnx import GraphProto

# What torch calls a size that it cannot tell: operator, value, dimension (`LayerNormalizationonnx::Gather_165_dim_0`).
_OF_TORCH = re.compile(r"[A-Z][\w:.]*_dim_\d+")
# ONNX's numbers of the types.
_FLOATS = {torch.float32: 1, torch.float16: 10, torch.float64: 11, torch.bfloat16: BFLOAT16}
_PAGE = 1 << 12  # a runtime can map a tensor that starts a page


def add_weights(path: Path, weights: Mapping[str, torch.Tensor], apart: bool) -> None:
    """Make initializers of the inputs that have the names of `weights`.

    apart: their data stays in the file `<name>.data` beside the model; else in the model, if it has room.
    """
    data = path.with_name(f"{path.name}.data")
    with edited(path) as proto, open(data, "wb") as out:
        inputs = {value.name: value for value in proto.graph.input}
        for name, weight in weights.items():
            if name not in inputs:  # no node reads it
                continue
            one = proto.graph.initializer.add(name=name, dims=weight.shape)
            one.data_type = inputs[name].type.tensor_type.elem_type
            one.data_location = one.EXTERNAL
            offset = _written(weight, out)
            entries = {"location": data.name, "offset": str(offset), "length": str(weight.nbytes)}
            for key, value in entries.items():
                one.external_data.add(key=key, value=value)
            proto.graph.input.remove(inputs[name])
    if not apart and sum(weight.nbytes for weight in weights.values()) < MOST_IN_ONE_FILE:
        take_in(path, data.name)


def _written(weight: torch.Tensor, out: BinaryIO) -> int:
    """Write the bytes of a tensor; returns where they begin."""
    out.write(bytes(-out.tell() % _PAGE))
    offset = out.tell()
    out.write(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return offset


def cast_float_outputs(graph: GraphProto, dtypes: Sequence[torch.dtype]) -> None:
    """Cast each float output that has another width than in `dtypes`, which are eager's in the same order."""
    from onnx import helper

    fixed = {name for node in graph.node for name in output_structure.names_in_subgraphs(node)}
    fixed |= {value.name for value in (*graph.input, *graph.initializer)}
    for output, dtype in zip(graph.output, dtypes, strict=True):
        kind, wanted = output.type.tensor_type, _FLOATS.get(dtype)
        if wanted is None or kind.elem_type == wanted or kind.elem_type not in _FLOATS.values():
            continue
        if output.name in fixed:  # its name cannot go to another value
            continue
        name, computed = output.name, f"{output.name}_computed"
        output_structure.rename_outputs(graph, {name: computed})
        graph.node.append(helper.make_node("Cast", [computed], [name], to=wanted))
        output.name, kind.elem_type = name, wanted


def name_output_sizes(graph: onnx.GraphProto) -> None:
    """Rename the sizes of outputs that are called after an operator. Sizes of one name keep one name."""
    inputs = {size.dim_param for value in graph.input for size in _sizes(value)}
    names: dict[str, str] = {}
    for value in graph.output:
        for axis, size in enumerate(_sizes(value)):
            if size.dim_param not in inputs and _OF_TORCH.fullmatch(size.dim_param):
                names.setdefault(size.dim_param, f"{value.name}_dim_{axis}")
    for value in (*graph.output, *graph.value_info) if names else ():
        for size in _sizes(value):
            if size.dim_param in names:
                size.dim_param = names[size.dim_param]


def _sizes(value: onnx.ValueInfoProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    if value.type.HasField("tensor_type"):
        yield from value.type.tensor_type.shape.dim
