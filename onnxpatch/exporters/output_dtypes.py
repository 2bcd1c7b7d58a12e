"""Gives the outputs of a graph by dynamo the dtypes that the model's have.

x.sum(-1)      of float16: torch adds up in float32, and leaves out the way back where the sum is an output
"""

from __future__ import annotations

from typing import Any

import torch
from onnxscript import ir  # onnx_ir, which onnxscript 0.2 has inside

_FLOATS = {
    torch.float16: ir.DataType.FLOAT16,
    torch.bfloat16: ir.DataType.BFLOAT16,
    torch.float32: ir.DataType.FLOAT,
    torch.float64: ir.DataType.DOUBLE,
}


def cast_outputs(program: Any) -> None:
    """Cast each float output of an ONNXProgram that has another width than in the program it was made of."""
    captured = getattr(program, "exported_program", None)
    if captured is None:
        return
    graph, wanted = program.model.graph, _user_outputs(captured)
    if len(wanted) != len(graph.outputs):
        return
    for number, (value, dtype) in enumerate(zip(list(graph.outputs), wanted, strict=True)):
        asked = _FLOATS.get(dtype) if dtype is not None else None
        if asked is None or value.dtype == asked or value.dtype not in _FLOATS.values():
            continue
        cast = ir.node("Cast", [value], {"to": int(asked)})
        made = cast.outputs[0]
        made.type, made.shape, made.name = ir.TensorType(asked), value.shape, f"{value.name}_cast"
        graph.append(cast)
        graph.outputs[number] = made


def _user_outputs(captured: Any) -> list[torch.dtype | None]:
    """The dtypes of what the model returns; None for what is no tensor."""
    specs = captured.graph_signature.output_specs
    (returned,) = next(node for node in captured.graph.nodes if node.op == "output").args
    pairs = zip(specs, returned, strict=False)
    values = [getattr(one, "meta", {}).get("val") for spec, one in pairs if spec.kind.name == "USER_OUTPUT"]
    return [value.dtype if isinstance(value, torch.Tensor) else None for value in values]
