"""Gives sizes of outputs names that a reader understands: `logits_dim_1` in place of torch's `Transpose197_dim_1`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx

# What torch calls a size that it cannot tell: operator, value, dimension (`LayerNormalizationonnx::Gather_165_dim_0`).
_OF_TORCH = re.compile(r"[A-Z][\w:.]*_dim_\d+")


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
