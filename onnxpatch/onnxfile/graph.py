"""Reading an ONNX graph: how many nodes of which kind, and which module of the model each came from."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

_SCOPES = "pkg.torch.onnx.name_scopes"
_LONGEST = 100_000  # characters
_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"  # torch.fx's stand-in for a stack that it has not


def all_nodes(graph: Any) -> Iterator[Any]:
    """Every node of a graph and of the graphs in its nodes' attributes (If, Loop, Scan)."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from all_nodes(inner)


def is_text(proto: Any) -> bool:
    """Whether every name in a model is text: protobuf gives bytes where a file has anything else."""
    graph = proto.graph
    names = [graph.name, *(part for entry in proto.metadata_props for part in (entry.key, entry.value))]
    names += [o.domain for o in proto.opset_import] + [one.name for one in graph.initializer]
    for value in (*graph.input, *graph.output, *graph.value_info):
        names += [value.name, *(dim.dim_param for dim in value.type.tensor_type.shape.dim)]
    for node in (one for part in (graph, *proto.functions) for one in all_nodes(part)):
        names += [node.name, node.op_type, node.domain, node.doc_string, *node.input, *node.output]
        names += [part for entry in node.metadata_props for part in (entry.key, entry.value)]
    return all(isinstance(name, str) for name in names)


def histogram(proto: Any) -> Counter[str]:
    """How often each operator stands in a model; constants are weights, and not counted."""
    graphs: Iterable[Any] = (proto.graph, *proto.functions)
    return Counter(node.op_type for graph in graphs for node in all_nodes(graph) if node.op_type != "Constant")


def module_of(node: Any) -> str | None:
    """The path of the module that a node was exported from ("" for the root); None where the exporter kept nothing.

    dynamo keeps scopes in the metadata; the TorchScript exporter writes them into the name, `/blocks/blocks.0/Add`.
    """
    kept = scopes(node)
    if kept is not None:
        named = [scope for scope in kept[:-1] if scope != _NO_MODULE]
        return named[-1] if named else ""
    if any(entry.key == _SCOPES for entry in node.metadata_props):
        return None
    if not node.name.startswith("/"):
        return None
    return _joined(node.name.strip("/").split("/")[:-1])


def scopes(node: Any) -> list[str] | None:
    """The names of the modules around a node and its own, as dynamo wrote them; None where it wrote none, or no list
    of strings."""
    written = next((entry.value for entry in node.metadata_props if entry.key == _SCOPES), None)
    if written is None or len(written) > _LONGEST:
        return None
    try:
        found = ast.literal_eval(written)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return found if isinstance(found, list) and all(isinstance(scope, str) for scope in found) else None


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
