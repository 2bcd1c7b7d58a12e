"""Reading an ONNX graph: how many nodes of which kind, and which module of the model each came from."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

_SCOPES = "pkg.torch.onnx.name_scopes"
_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"  # torch.fx's stand-in for a stack that it has not


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


def module_of(node: Any) -> str | None:
    """The path of the module that a node was exported from ("" for the root); None where the exporter kept nothing.

    dynamo keeps scopes in the metadata; the TorchScript exporter writes them into the name, `/blocks/blocks.0/Add`.
    """
    kept = next((entry.value for entry in node.metadata_props if entry.key == _SCOPES), None)
    if kept is not None:
        try:
            scopes = ast.literal_eval(kept)
        except (ValueError, SyntaxError):
            return None
        named = [scope for scope in scopes[:-1] if scope != _NO_MODULE]
        return str(named[-1]) if named else ""
    if not node.name.startswith("/"):
        return None
    return _joined(node.name.strip("/").split("/")[:-1])


def _joined(scopes: list[str]) -> str:
    parts: list[str] = []
    for scope in scopes:
        if parts and scope.startswith(parts[-1] + "."):  # an item is named after the list that holds it
            parts[-1] = scope
        else:
            parts.append(scope)
    return ".".join(parts)


def by_module(proto: Any) -> dict[str, list[Any]]:
    """The nodes of the main graph by the module that they came from, constants left out."""
    found: dict[str, list[Any]] = {}
    for node in proto.graph.node:
        path = module_of(node)
        if path is not None and node.op_type != "Constant":
            found.setdefault(path, []).append(node)
    return found


def shapes(proto: Any) -> dict[str, str]:
    """`2×h×8` for every value whose shape the graph states."""
    graph = proto.graph
    return {value.name: _shape(value) for value in (*graph.value_info, *graph.input, *graph.output)}


def _shape(value: Any) -> str:
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        return ""
    dims = value.type.tensor_type.shape.dim
    return "×".join(str(d.dim_value) if d.HasField("dim_value") else (d.dim_param or "?") for d in dims) or "scalar"
