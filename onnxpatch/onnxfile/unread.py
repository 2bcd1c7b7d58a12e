"""Removes nodes whose results nothing in the graph reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnxpatch.onnxfile.graph import all_nodes

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


def drop_unread(graph: GraphProto) -> None:
    """Take out nodes that nothing reads any more, and what is said or stored for their values alone."""
    wanted = {one.name for one in graph.output}
    kept: list[NodeProto] = []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(name for one in (node, *_inside(node)) for name in one.input)
    left = {name for node in kept for name in node.output}
    dropped = [node for node in graph.node if not left.intersection(node.output)]
    gone = {name for node in dropped for name in node.output}
    idle = {name for node in dropped for name in node.input} - wanted - {one.name for one in graph.input}
    _drop(graph.value_info, gone)
    _drop(graph.initializer, idle)
    nodes = list(reversed(kept))
    del graph.node[:]
    graph.node.extend(nodes)


def _drop(repeated: Any, names: set[str]) -> None:
    for place in reversed(range(len(repeated))):
        if repeated[place].name in names:
            del repeated[place]


def _inside(node: NodeProto) -> list[NodeProto]:
    graphs = [one.g for one in node.attribute if one.HasField("g")]
    return [inner for one in graphs for inner in all_nodes(one)]
