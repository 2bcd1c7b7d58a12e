"""Gives float outputs of a file the width that the model's have.

x.double().sum() * n      the TorchScript exporter computes numbers of shape () in float32
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from onnxpatch.onnxfile import output_structure
from onnxpatch.onnxfile.bfloat16 import BFLOAT16

if TYPE_CHECKING:
    from onnx import GraphProto

# ONNX's numbers of the types.
_FLOATS = {torch.float32: 1, torch.float16: 10, torch.float64: 11, torch.bfloat16: BFLOAT16}


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
