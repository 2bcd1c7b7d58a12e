"""Writes a Scan whose rows may be none as a Loop: onnxruntime refuses a Scan of no rows, a Loop of no rounds it runs.

    for i in range(1, n): ...      n - 1 rows, none at n = 1

    Scan(state, rows)              Loop(rounds = Shape(rows)[axis], state)
      body(state, row)               body(i, state): row = Gather(rows, i)

A Scan over a whole dynamic dimension of an input stays as it is: such a dimension is at least 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnxscript import ir


def write_as_loops(model: ir.Model) -> None:
    """Replace, in the graph and in the graphs inside it, every Scan that may have no rows."""
    given = {
        size.value for value in model.graph.inputs for size in value.shape or () if isinstance(size, ir.SymbolicDim)
    }
    # A list, since nodes are replaced on the way. onnxscript 0.2 has no `Graph.all_nodes`.
    for node in list(ir.traversal.RecursiveGraphIterator(model.graph)):
        if node.op_type == "Scan" and node.domain == "" and not _has_rows(node, given):
            _replace(node)


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


def _replace(scan: ir.Node) -> None:
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
