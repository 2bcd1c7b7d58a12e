"""Passes over a program that dynamo made: where its numbers are not as wide as the model's, and primitives of torch.

x.sum(-1)              of float16: torch adds up in float32, and leaves out the way back where the sum is an output
math.ceil(n * 0.3)     of a size: the exporter writes it in float32, and rounds another number than Python
prims.hypot            and others into which torch takes functions apart, and which have no translation

Where a fraction of sizes is made a whole number again (`ceil`, `floor`, `trunc`, `round`), it is computed once more
from the sizes, in float64. The constants come from the recorded calls, which the exporter keeps on its nodes
(`node.meta["node"]`); where it does not, or where a node is of another kind, its own translation is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from onnxscript import ir  # onnx_ir, which onnxscript 0.2 has inside
from onnxscript.onnx_opset import opset18 as op

_FLOATS = {
    torch.float16: ir.DataType.FLOAT16,
    torch.bfloat16: ir.DataType.BFLOAT16,
    torch.float32: ir.DataType.FLOAT,
    torch.float64: ir.DataType.DOUBLE,
}
_INT64, _DOUBLE = int(ir.DataType.INT64), int(ir.DataType.DOUBLE)
_BINARY: dict[str, Callable[..., Any]] = {"Add": op.Add, "Sub": op.Sub, "Mul": op.Mul, "Div": op.Div, "Pow": op.Pow}
_UNARY: dict[str, Callable[..., Any]] = {
    "Sqrt": op.Sqrt,
    "Neg": op.Neg,
    "Abs": op.Abs,
    "Floor": op.Floor,
    "Ceil": op.Ceil,
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


class _OtherKindError(Exception):
    """A value is no fraction of sizes, or was made in another way."""


def _doubled(value: Any) -> object:
    """The same number in float64. Raises _OtherKindError."""
    constant = ir.convenience.get_const_tensor(value)
    if constant is not None:
        return _constant(float(constant.numpy()))
    node = value.producer()
    if node is None:
        raise _OtherKindError
    if node.op_type == "Cast":  # of a size
        source = node.inputs[0]
        return op.Cast(source, to=_DOUBLE) if source.dtype == ir.DataType.INT64 else _doubled(source)
    if node.op_type in _UNARY:
        return _UNARY[node.op_type](_doubled(node.inputs[0]))
    if node.op_type in _BINARY:
        return _BINARY[node.op_type](*(_operand(one, node) for one in node.inputs))
    raise _OtherKindError


def _operand(value: Any, node: Any) -> object:
    """An operand; a constant as the recorded call has it, in double precision."""
    made = value.producer()
    # The exporter casts some constants once more.
    source = made.inputs[0] if made is not None and made.op_type in ("Cast", "CastLike") else value
    constant = ir.convenience.get_const_tensor(source)
    if constant is None:
        return _doubled(value)
    # The exporter has rounded the constant: 0.29 of the call is found again by what it rounds to.
    rounded = numpy.float32(float(constant.numpy()))
    recorded = getattr(node.meta.get("node"), "args", ())
    exact = [one for one in recorded if isinstance(one, int | float) and numpy.float32(one) == rounded]
    if not exact:
        raise _OtherKindError
    return _constant(float(exact[0]))


def _constant(number: float) -> object:
    exact: Any = ir.tensor(number, dtype=ir.DataType.DOUBLE)
    return op.Constant(value=exact)


def _best(value: object) -> Any:
    try:
        return _doubled(value)
    except (_OtherKindError, AttributeError, TypeError, ValueError):
        return value


def _ceil(self: Any) -> object:
    return op.Cast(op.Ceil(_best(self)), to=_INT64)


def _floor(self: Any) -> object:
    return op.Cast(op.Floor(_best(self)), to=_INT64)


def _trunc(self: Any) -> object:
    return op.Cast(_best(self), to=_INT64)


def _round(self: Any, *digits: object) -> object:
    if digits and digits[0] is not None:
        raise ValueError("round() to a number of digits has no form in ONNX")
    # ONNX rounds half to even, as Python does.
    return op.Cast(op.Round(_best(self)), to=_INT64)


# ------------------------------------------------------------------ primitives that torch takes functions apart into
def _hypot(x: Any, y: Any) -> object:
    return op.Sqrt(op.Add(op.Mul(x, x), op.Mul(y, y)))


def _prod(inp: Any, dims: Sequence[int] | None = None, output_dtype: int | None = None) -> object:
    x: Any = inp if output_dtype in (None, -1) else op.Cast(inp, to=output_dtype)
    axes: Any = op.Constant(value_ints=list(dims)) if dims else None
    return op.ReduceProd(x, axes, keepdims=0)


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    math.ceil: _ceil, math.floor: _floor, math.trunc: _trunc, round: _round,
    torch.ops.prims.hypot.default: _hypot, torch.ops.prims.prod.default: _prod,
    torch.ops.prims.view_of.default: lambda a: op.Identity(a), torch.ops.aten.sym_numel.default: lambda a: op.Size(a),
}  # fmt: skip
"""For torch.onnx.export's `custom_translation_table`."""
