"""Passes over a program that dynamo made: they replace what has no ONNX form, or one that runtimes do not take.

math.ceil(n * 0.3)             of a size: the exporter writes it in float32, and rounds another number than Python
prims.prod                     and others into which torch takes functions apart, which have no translation
for i in range(1, n): ...      onnxruntime refuses a Scan of no rows, n = 1; a Loop of no rounds it runs

Where a fraction of sizes is made a whole number again (`ceil`, `floor`, `trunc`, `round`), it is computed once more
from the sizes, in float64. The constants come from the recorded calls, which the exporter keeps on its nodes
(`node.meta["node"]`); where it does not, or where a node is of another kind, its own translation is used.

    Scan(state, rows)              Loop(rounds = Shape(rows)[axis], state)
      body(state, row)               body(i, state): row = Gather(rows, i)

A Scan over a whole dynamic dimension of an input stays as it is: such a dimension is at least 1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from onnxscript import ir  # onnx_ir, which onnxscript 0.2 has inside
from onnxscript.onnx_opset import opset18 as op

_INT64, _DOUBLE = int(ir.DataType.INT64), int(ir.DataType.DOUBLE)
_BINARY = ("Add", "Sub", "Mul", "Div", "Pow")
_UNARY = ("Sqrt", "Neg", "Abs", "Floor", "Ceil")


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
        return getattr(op, node.op_type)(_doubled(node.inputs[0]))
    if node.op_type in _BINARY:
        return getattr(op, node.op_type)(*(_operand(one, node) for one in node.inputs))
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
    rounded = np.float32(float(constant.numpy()))
    recorded = getattr(node.meta.get("node"), "args", ())
    exact = [one for one in recorded if isinstance(one, int | float) and np.float32(one) == rounded]
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


def _round(self: Any, *digits: object) -> object:
    if digits and digits[0] is not None:
        raise ValueError("round() to a number of digits has no form in ONNX")
    # ONNX rounds half to even, as Python does.
    return op.Cast(op.Round(_best(self)), to=_INT64)


def _sum(*terms: Any) -> object:
    # In a number made of its expression torch has the terms themselves, else a list of them.
    return functools.reduce(op.Add, terms[0] if isinstance(terms[0], list | tuple) else terms)


# ------------------------------------------------------------------ primitives that torch takes functions apart into
def _prod(inp: Any, dims: Sequence[int] | None = None, output_dtype: int | None = None) -> object:
    x: Any = inp if output_dtype in (None, -1) else op.Cast(inp, to=output_dtype)
    axes: Any = op.Constant(value_ints=list(dims)) if dims else None
    return op.ReduceProd(x, axes, keepdims=0)


def _scalar(
    s: Any, dtype: int | None = None, layout: object = None, device: object = None, pin_memory: object = None
) -> object:
    to = None if dtype in (None, -1) else ir.DataType(int(dtype))
    if isinstance(s, int | float):
        exact: Any = ir.tensor(s, dtype=to)
        return op.Constant(value=exact)
    return op.Identity(s) if to is None else op.Cast(s, to=to)


def _squeeze(x: Any, dim: int | Sequence[int]) -> object:
    """torch.squeeze. In the program a dynamic size is not 1; the exporter writes a Squeeze of it all the same."""
    asked = [dim] if isinstance(dim, int) else dim
    fixed = [axis for axis in asked if x.shape and x.shape[axis] == 1]
    if not fixed:
        return op.Identity(x)
    axes: Any = op.Constant(value_ints=fixed)
    return op.Squeeze(x, axes)


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    math.ceil: lambda self: op.Cast(op.Ceil(_best(self)), to=_INT64),
    math.floor: lambda self: op.Cast(op.Floor(_best(self)), to=_INT64),
    math.trunc: lambda self: op.Cast(_best(self), to=_INT64), round: _round, torch.sym_sum: _sum,
    torch.ops.prims.prod.default: _prod, torch.ops.prims.scalar_tensor.default: _scalar,
    torch.ops.prims.view_of.default: lambda a: op.Identity(a), torch.ops.aten.sym_numel.default: lambda a: op.Size(a),
    torch.ops.prims.copy_strided.default: lambda a, stride: op.Identity(a),
    torch.ops.aten.squeeze.dim: _squeeze, torch.ops.aten.squeeze.dims: _squeeze,
    torch.ops.aten._int_mm.default: lambda a, b: op.MatMulInteger(a, b),
}  # fmt: skip
"""For torch.onnx.export's `custom_translation_table`."""


def write_as_loops(model: ir.Model) -> None:
    """Replace, in the graph and in the graphs inside it, every Scan that may have no rows."""
    given = {
        size.value for value in model.graph.inputs for size in value.shape or () if isinstance(size, ir.SymbolicDim)
    }
    # A list, since nodes are replaced on the way. onnxscript 0.2 has no `Graph.all_nodes`.
    for node in list(ir.traversal.RecursiveGraphIterator(model.graph)):
        if node.op_type == "Scan" and node.domain == "" and not _has_rows(node, given):
            _as_loop(node)
    _remove_what_removed_loops_use(model.graph)


def _remove_what_removed_loops_use(graph: ir.Graph) -> None:
    """Remove what is used nowhere but in the body of a Scan that is gone. onnxscript's pass still counts those uses."""
    there = set(ir.traversal.RecursiveGraphIterator(graph))
    for node in reversed(graph):
        if not any(one.is_graph_output() or any(use[0] in there for use in one.uses()) for one in node.outputs):
            graph.remove(node)
            there.discard(node)


def _rows(scan: ir.Node) -> tuple[Sequence[ir.Value], list[int]]:
    """What a Scan takes row by row, and along which axis of each."""
    count = scan.attributes["num_scan_inputs"].as_int()
    rows = [value for value in scan.inputs if value is not None][-count:]
    axes = scan.attributes.get("scan_input_axes")
    return rows, [0] * count if axes is None else list(axes.as_ints())


def _has_rows(scan: ir.Node, given: set[str | None]) -> bool:
    """Whether a Scan is sure to have a row: the number of rows is fixed, or a dynamic size of an input."""
    for value, axis in zip(*_rows(scan), strict=True):
        size = value.shape[axis] if value.shape is not None else None
        if (isinstance(size, int) and size > 0) or (isinstance(size, ir.SymbolicDim) and size.value in given):
            return True
    return False


def _plain(scan: ir.Node) -> bool:
    """Whether its rows are read, and its outputs stacked, in the order and along the axis that a Loop has, too."""
    others = ("scan_input_directions", "scan_output_directions", "scan_output_axes")
    return not any(any(scan.attributes[name].as_ints()) for name in others if name in scan.attributes)


def _as_loop(scan: ir.Node) -> None:
    graph = scan.graph
    if graph is None or not _plain(scan):
        return
    rows, axes = _rows(scan)
    states = scan.inputs[: len(scan.inputs) - len(rows)]
    body = scan.attributes["body"].as_graph()
    number = ir.Value(name=f"{scan.name}_round", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]))
    go_on = ir.Value(name=f"{scan.name}_go_on", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
    taken = []
    for k, (value, axis, row) in enumerate(zip(rows, axes, body.inputs[len(states) :], strict=True)):
        node = ir.node("Gather", [value, number], {"axis": axis}, name=f"{scan.name}_row_{k}")
        found = node.outputs[0]
        found.name, found.type, found.shape = f"{row.name}_taken", row.type, row.shape
        ir.convenience.replace_all_uses_with(row, found)
        taken.append(node)
    goes_on = ir.node("Identity", [go_on], name=f"{scan.name}_goes_on")
    goes_on.outputs[0].name = f"{scan.name}_goes_on"
    goes_on.outputs[0].type, goes_on.outputs[0].shape = go_on.type, go_on.shape
    # The body is changed, not made again: its constants belong to it.
    for row in list(body.inputs)[len(states) :]:
        body.inputs.remove(row)
    body.inputs.insert(0, go_on)
    body.inputs.insert(0, number)
    first = next(iter(body), None)
    if first is None:
        body.extend(taken)
    else:
        body.insert_before(first, taken)
    body.append(goes_on)
    body.outputs.insert(0, goes_on.outputs[0])
    end = {} if axes[0] == -1 else {"end": axes[0] + 1}
    size = ir.node("Shape", [rows[0]], {"start": axes[0], **end}, name=f"{scan.name}_rows")
    rounds = ir.node("Squeeze", [size.outputs[0]], name=f"{scan.name}_rounds")
    true = ir.node("Constant", [], {"value": ir.tensor(np.array(True))}, name=f"{scan.name}_true")
    for one in (size, rounds, true):  # unnamed, they might get the name of a value of the body
        one.outputs[0].name = one.name
    loop = ir.Node(
        "",
        "Loop",
        [rounds.outputs[0], true.outputs[0], *states],
        [ir.AttrGraph("body", body)],
        num_outputs=len(scan.outputs),
        name=scan.name,
    )
    ir.convenience.replace_nodes_and_values(graph, scan, [scan], [size, rounds, true, loop], scan.outputs, loop.outputs)
