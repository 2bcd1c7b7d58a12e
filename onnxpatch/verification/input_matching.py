"""Matches the values of the example with the inputs of an ONNX file, and refuses those that do not fit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from onnxpatch.errors import InputError
from onnxpatch.exporters.request import ExportRequest
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.axis_specs import has_operator
from onnxpatch.inputs.dims import DynamicDim, dynamic_dims
from onnxpatch.inputs.leaves import Inputs, Leaf
from onnxpatch.onnxfile.graph import dtype_name
from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.results.checks import Frozen
from onnxpatch.verification.comparison import dtype_text


@dataclass(frozen=True)
class Feed:
    """Which value of a call feeds which input of a file. leaves: by the input's name, the index of the leaf.

    widths: by the input's name, the floating dtype that the file takes in place of the call's.
    """

    leaves: Mapping[str, int]
    widths: Mapping[str, torch.dtype] = field(default_factory=dict)

    def of(self, values: Sequence[object]) -> dict[str, Any]:
        """The file's inputs by name. values: one for each leaf of the call."""
        return {name: self._value(name, values[leaf]) for name, leaf in self.leaves.items()}

    def _value(self, name: str, value: Any) -> Any:
        return value.to(self.widths[name]) if name in self.widths else value


def match_inputs(graph: Graph, inputs: Inputs, input_names: Sequence[str] | None = None) -> Feed:
    """Find the leaf for each input of the graph. Raises InputError if they do not fit.

    input_names: in the order of the leaves. Without them leaves are matched by name, else by position.
    """
    have = [i.name for i in graph.inputs]
    if input_names:
        leaves = _leaves_for(len(input_names), inputs)
        if leaves is not None:
            # Names that the file lacks are left out: exporters drop inputs that nothing reads.
            found = {n: leaf.index for n, leaf in zip(input_names, leaves, strict=True) if n in have}
            if len(found) == len(have):
                return Feed(found)
        raise InputError(
            f"input_names are {list(input_names)}, the file's inputs {have}, the example {_format_inputs(inputs)}: "
            "give the file's names, in the order of the example"
        )
    by_name = [inputs.find(name) for name in have]
    if all(leaf is not None for leaf in by_name):
        return Feed({name: leaf.index for name, leaf in zip(have, by_name, strict=True) if leaf is not None})
    by_place = _leaves_for(len(have), inputs)
    if by_place is None:
        raise InputError(
            f"{graph.path.name} takes {len(have)} inputs {have}, the example gives {_format_inputs(inputs)}: "
            "give the example that it was exported with, or input_names="
        )
    return Feed({name: leaf.index for name, leaf in zip(have, by_place, strict=True)})


def feed_of(graph: Graph, request: ExportRequest) -> Feed:
    """The feed of a file that was made for a request. Raises InputError if they do not fit."""
    return match_inputs(graph, request.inputs, request.names_among([one.name for one in graph.inputs]))


def in_widths(graph: Graph, feed: Feed, inputs: Inputs) -> Feed:
    """The feed that gives floats in the file's width: a file in float16 of a model in float32."""
    widths = {}
    for name, leaf in feed.leaves.items():
        value, dtype = inputs.leaves[leaf].value, getattr(torch, _dtype(graph, name), None)
        floats = isinstance(value, torch.Tensor) and value.is_floating_point()
        if floats and isinstance(dtype, torch.dtype) and dtype.is_floating_point and dtype != value.dtype:
            widths[name] = dtype
    return replace(feed, widths=widths)


def _leaves_for(count: int, inputs: Inputs) -> list[Leaf] | None:
    # Numbers are inputs under trace and constants under dynamo, so the count tells which of them wrote the file.
    for exporter in ("dynamo", "trace"):
        leaves = inputs.graph_leaves(exporter)
        if len(leaves) == count:
            return leaves
    return None


def _format_inputs(inputs: Inputs) -> str:
    tensors = [f"{leaf.name} {tuple(leaf.value.shape)}" for leaf in inputs.leaves if leaf.is_tensor]
    return f"{len(tensors)} tensors: {', '.join(tensors)}"


def declared_by(graph: Graph, feed: Feed, inputs: Inputs) -> list[shapes.LeafSpec]:
    """The dynamic axes of the file's inputs, for a caller who declares none.

    A size that the file calls `past + n` counts as a sum only if it is one in the example: other tools may write any
    text there.
    """
    specs: list[shapes.LeafSpec] = [{} for _ in inputs.leaves]
    for name, leaf in feed.leaves.items():
        value = inputs.leaves[leaf].value
        shape = graph.input_shape(name)
        if isinstance(value, torch.Tensor) and len(shape) == value.dim():
            free = {a: s for a, s in enumerate(shape) if not isinstance(s, int)}
            specs[leaf] = {a: s or f"{name}_dim{a}" for a, s in free.items()}
    try:
        dynamic_dims(inputs, specs)
    except InputError:
        # The text is no sum of sizes then: each axis is a dimension of its own, under a name without operators.
        return [{a: _plain_name(str(s)) for a, s in spec.items()} for spec in specs]
    return specs


def _plain_name(text: str) -> str:
    return re.sub(r"\W+", "_", text) if has_operator(text) else text


def refuse_unfitting(graph: Graph, inputs: Inputs, feed: Feed, specs: Sequence[shapes.LeafSpec]) -> None:
    """Raises InputError if the file cannot take the example: another dtype, rank or static size.

    A size that was declared dynamic and is static in the file is no error here: it is reported as specialized.
    """
    for name, leaf in feed.leaves.items():
        given = inputs.leaves[leaf]
        value = given.value
        # Numbers fit any dtype, and a complex tensor has another rank in the file.
        if not isinstance(value, torch.Tensor) or value.is_complex():
            continue
        dtype, shape = _dtype(graph, name), graph.input_shape(name)
        free = {axis for axis, spec in specs[leaf].items() if shapes.is_dynamic(spec)}
        fits = name in feed.widths or dtype in ("undefined", dtype_text(value))
        if fits and _takes(shape, value.shape, free):
            continue
        raise InputError(
            f"{graph.path.name}: input {name!r} is {dtype}{_format_shape(shape)}, the example gives {given.name} as "
            f"{dtype_text(value)}{_format_shape(value.shape)}: give the example that it was exported with"
        )


def frozen_inputs(graph: Graph, feed: Feed, dims: Sequence[DynamicDim]) -> list[Frozen]:
    """Dimensions declared dynamic that the file's own inputs show as a number."""
    found = []
    name_of = {leaf: name for name, leaf in feed.leaves.items()}
    for dim in dims:
        for leaf, axis, size in dim.places:
            if leaf not in name_of:
                continue
            shape = graph.input_shape(name_of[leaf])
            if axis < len(shape) and isinstance(shape[axis], int):
                name = dim.name if size.is_plain else size.text or f"{dim.name}'s derived Dim"
                found.append(Frozen(name, f"is {shape[axis]} in the file: input {name_of[leaf]!r}, axis {axis}"))
    return list(dict.fromkeys(found))  # an axis of size past+n is listed for past and for n


def _dtype(graph: Graph, name: str) -> str:
    return dtype_name(next(i for i in graph.inputs if i.name == name).type.tensor_type.elem_type)


def _takes(shape: Sequence[object], sizes: Sequence[int], free: set[int]) -> bool:
    """Whether an input of `shape` takes `sizes`. shape: as the file declares it; [] if it declares none."""
    if len(shape) != len(sizes):
        return not shape
    fixed = {axis: size for axis, size in enumerate(shape) if isinstance(size, int) and size > 0 and axis not in free}
    return all(sizes[axis] == size for axis, size in fixed.items())


def _format_shape(shape: Sequence[object]) -> str:
    return "[" + ",".join("?" if size is None else str(size) for size in shape) + "]"
