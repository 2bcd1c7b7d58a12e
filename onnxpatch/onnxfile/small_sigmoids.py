"""A Sigmoid of which a logarithm is taken, written as eager computes it.

    Log(Sigmoid(x))       Log(Reciprocal(1 + Exp(-x)))      also behind a Clip, a sum, a product

onnxruntime's Sigmoid of float32 has an error of 1e-7, and is 0 below -18: its logarithm is off by 1 at -17, and -inf at
-18. Eager's is right down to -88. The form takes three times as long, so that other Sigmoids stay.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from onnxpatch.onnxfile.editing import NewNodes, UseDef, edited, mentions, rewrite
from onnxpatch.onnxfile.graph import all_graphs

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

_HANDS_ON = {"Add", "Clip", "Concat", "Gather", "Identity", "Max", "Min", "Mul", "Reshape", "Slice", "Sub", "Transpose"}


def write_small_sigmoids(file: str | os.PathLike[str]) -> int:
    """Change a file in place; returns how many nodes were written so."""
    if not (mentions(file, ["Log"]) and mentions(file, ["Sigmoid"])):
        return 0
    with edited(file) as proto:
        known = UseDef(proto)

        def written(node: NodeProto) -> list[NodeProto]:
            return _spelled_out(node) if node.output[0] in wanted and known.is_float32(node.output[0]) else []

        count = 0
        for graph in all_graphs(proto.graph):
            wanted = _below_logarithms(graph)
            count += rewrite(graph, written)
        return count


def _below_logarithms(graph: GraphProto) -> set[str]:
    """The values that Sigmoid makes and a logarithm reads, at once or through what keeps a value small."""
    makers = {name: node for node in graph.node for name in node.output}
    pending = [name for node in graph.node if node.op_type == "Log" for name in node.input]
    seen, found = set[str](), set[str]()
    while pending:
        node = makers.get(name := pending.pop())
        if node is None or name in seen:
            continue
        seen.add(name)
        if node.op_type == "Sigmoid":
            found.add(name)
        elif node.op_type in _HANDS_ON:
            pending += node.input
    return found


def _spelled_out(node: NodeProto) -> list[NodeProto]:
    new = NewNodes(node)
    above = new.add("Exp", new.add("Neg", node.input[0]))
    new.add("Reciprocal", new.add("Add", above, new.number(1.0)))
    return new.named()
