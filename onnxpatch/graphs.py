"""Counting what is in an ONNX graph, subgraphs and local functions included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any


def all_nodes(graph: Any) -> Iterator[Any]:
    """Every node of a graph and of the graphs in its nodes' attributes (If, Loop, Scan)."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from all_nodes(inner)


def histogram(proto: Any) -> Counter[str]:
    """How often each operator stands in a model; constants are weights, and not counted."""
    graphs: Iterable[Any] = (proto.graph, *proto.functions)
    return Counter(node.op_type for graph in graphs for node in all_nodes(graph) if node.op_type != "Constant")
