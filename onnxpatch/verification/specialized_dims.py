"""Where a size that should have stayed free did not: in the file's declared shapes, or at one of its nodes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.onnxfile.graph import all_nodes
from onnxpatch.onnxfile.runtime import Graph, shapes_inside
from onnxpatch.results.report import Frozen
from onnxpatch.verification.input_matching import Feed
from onnxpatch.verification.probe import Probe

# Operators that may take their output's size from a constant, where the model takes it from its input.
_SIZED = frozenset({"Reshape", "Expand", "Resize", "Tile", "Pad", "CenterCropPad"})


def frozen_inputs(graph: Graph, feed: Feed, dims: Sequence[DynamicDim]) -> list[Frozen]:
    """Dimensions declared dynamic that the file's own inputs show as a number."""
    found = []
    name_of = {leaf: name for name, leaf in feed.leaves.items()}
    for dim in dims:
        for leaf, axis, _ in dim.places:
            if leaf not in name_of:
                continue
            shape = graph.input_shape(name_of[leaf])
            if axis < len(shape) and isinstance(shape[axis], int):
                found.append(Frozen(dim.name, f"is {shape[axis]} in the file: input {name_of[leaf]!r}, axis {axis}"))
    return found


def frozen_at(graph: Graph, node_name: str, dimension: str) -> Frozen | None:
    """The node that a runtime named when it refused another size."""
    for node in all_nodes(graph.proto.graph):
        if node.name == node_name:
            return Frozen(dimension, "stops the graph at another size", node.name, node.op_type, source_of(node))
    return None


def frozen_nodes(graph: Graph, feed: Feed, example: Probe, other: Probe) -> Iterator[Frozen]:
    """Nodes that make a size of their own, whose input changes between two probes where their output does not."""
    before, after = (shapes_inside(graph, feed.of(probe.values)) for probe in (example, other))
    moved = ", ".join(n for n, size in other.sizes.items() if example.sizes.get(n) != size)
    for node in graph.proto.graph.node:
        values = [node.input[0], node.output[0]] if node.op_type in _SIZED and node.input else []
        if not values or any(name not in before or name not in after for name in values):
            continue
        (data, out), (data_after, out_after) = ([shapes[name] for name in values] for shapes in (before, after))
        kept = [a for a, size in enumerate(data) if size != data_after[a] and out[a : a + 1] == out_after[a : a + 1]]
        if len(data) == len(out) and kept:
            where = f"keeps axes {kept} of its output at {list(out)}"
            yield Frozen(moved, where, node.name, node.op_type, source_of(node))


def source_of(node: Any) -> str:
    """`file:line in function: code`, innermost frame, where the exporter kept it; else the module path, or ''."""
    kept = {entry.key: entry.value for entry in getattr(node, "metadata_props", ())}
    trace = kept.get("pkg.torch.onnx.stack_trace", "") or node.doc_string
    frames = re.findall(r'File "([^"]+)", line (\d+), in (\S+)\n\s*([^\n]*)', trace)
    if frames:
        file, line, function, code = frames[-1]
        return f"{file}:{line} in {function}: {code.strip()}"
    found = re.search(r"(\S+\.py)\((\d+)\): (\S+)", trace)
    if found:
        return f"{found[1]}:{found[2]} in {found[3]}"
    return _scope(kept.get("pkg.torch.onnx.name_scopes", ""))


def _scope(written: str) -> str:
    try:
        scopes = [scope for scope in ast.literal_eval(written) if scope]
    except (ValueError, SyntaxError):
        return ""
    return f"in module {scopes[-2]}" if len(scopes) > 1 else ""
