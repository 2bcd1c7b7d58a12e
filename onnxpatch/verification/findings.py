"""Dynamic dimensions that a wrong file keeps at the example's size, by the node that shows it.

That node fails at every other size, or its output keeps its shape when its input's shape changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from onnxpatch.onnxfile.graph import all_nodes, scopes
from onnxpatch.onnxfile.runtime import Graph, intermediate_shapes
from onnxpatch.results.checks import Checked, Frozen
from onnxpatch.verification.input_matching import Feed
from onnxpatch.verification.probe import Probe

_MOST = 5
# Operators that may take their output's size from a constant, where the model takes it from its input.
_SIZED = frozenset({"Reshape", "Expand", "Resize", "Tile", "Pad", "CenterCropPad"})
_LONGEST = 10_000  # characters of a stack trace that are read: a file may have any text there


def specialized(
    graph: Graph, feed: Feed, known: Sequence[Frozen], checks: Sequence[Checked], probes: Sequence[Probe]
) -> list[Frozen]:
    """`known`, and the dimensions that a node keeps. checks: of the first probes, in order."""
    found, example = list(known), probes[0]
    bad = [(c, p) for c, p in zip(checks, probes, strict=False) if not c.ok and p.sizes != example.sizes]
    bad.sort(key=lambda pair: len(_moved(example, pair[1])))  # H alone says more than H and W together
    for check, probe in bad[: 2 * _MOST]:
        at_node = frozen_at(graph, check.node, example, probe, checks) if check.node else None
        if at_node and (at_node.node, at_node.dimension) not in [(one.node, one.dimension) for one in found]:
            found.append(at_node)
    # With the most dimensions moved, most nodes show that they keep a size.
    silent = next((p for c, p in reversed(bad) if c.status == "wrong"), None)
    if silent is not None:
        found += list(frozen_nodes(graph, feed, example, silent))[:_MOST]
    return _fewest_moved(found)


def _fewest_moved(found: list[Frozen]) -> list[Frozen]:
    """Without the nodes that already fail when fewer dimensions change: H alone, then not H and W again."""
    moved = [(set(one.dimension.split(", ")), one) for one in found]
    return [one for names, one in moved if not any(less < names and other.node == one.node for less, other in moved)]


def _moved(example: Probe, probe: Probe) -> list[str]:
    return [name for name, size in probe.sizes.items() if example.sizes.get(name) != size]


def frozen_at(graph: Graph, node_name: str, example: Probe, other: Probe, checks: Sequence[Checked]) -> Frozen | None:
    """The node that the runtime named when it failed at another size. It is called specialized if no other is right."""
    moved = _moved(example, other)
    kept, failing = (", ".join(str(probe.sizes[name]) for name in moved) for probe in (example, other))
    right = {tuple(check.sizes[name] for name in moved) for check in checks if check.ok and check.sizes}
    right.discard(tuple(example.sizes[name] for name in moved))
    where = f"was specialized to {kept}; this node fails at {failing}"
    if right:
        others = " and ".join(", ".join(map(str, sizes)) for sizes in sorted(right)[:_MOST])
        where = f"makes this node fail at {failing}, not at {others}"
    named = (node for node in all_nodes(graph.proto.graph) if node.name == node_name)
    return next((Frozen(", ".join(moved), where, n.name, n.op_type, source_line(n)) for n in named), None)


def frozen_nodes(graph: Graph, feed: Feed, example: Probe, other: Probe) -> Iterator[Frozen]:
    """Nodes such as Reshape whose output keeps a size between two probes at which their input changes it."""
    before, after = (intermediate_shapes(graph, feed.of(probe.values)) for probe in (example, other))
    moved = ", ".join(_moved(example, other))
    for node in graph.proto.graph.node:
        if node.op_type not in _SIZED or not node.input:
            continue
        data, data_after = before.get(node.input[0]), after.get(node.input[0])
        out, out_after = before.get(node.output[0]), after.get(node.output[0])
        # Only where the axes of input and output can be taken for the same ones.
        if data is None or data_after is None or out is None or out_after is None or len(data) != len(out):
            continue
        kept = [a for a, size in enumerate(data) if size != data_after[a] and out[a : a + 1] == out_after[a : a + 1]]
        if kept:
            where = f"keeps axes {kept} of its output at {list(out)}"
            yield Frozen(moved, where, node.name, node.op_type, source_line(node))


def source_line(node: Any) -> str:
    """`file:line in function: code` of the innermost frame, if the exporter kept it; else the module path, or ''."""
    kept = {entry.key: entry.value for entry in getattr(node, "metadata_props", ())}
    trace = kept.get("pkg.torch.onnx.stack_trace", "") or node.doc_string
    # The dynamo exporter writes a Python traceback, whose last frame is the innermost.
    frames = re.findall(r'File "([^"]+)", line (\d+), in (\S+)\n\s*([^\n]*)', trace[-_LONGEST:])
    if frames:
        file, line, function, code = frames[-1]
        return f"{file}:{line} in {function}: {code.strip()}"
    # The TorchScript exporter writes `file.py(line): function`, the innermost frame first.
    found = re.search(r"(\S+\.py)\((\d+)\): (\S+)", trace[:_LONGEST])
    if found:
        return f"{found[1]}:{found[2]} in {found[3]}"
    # The last name is the node's own, the one before it the module's.
    named = [scope for scope in scopes(node) or () if scope]
    return f"in module {named[-2]}" if len(named) > 1 else ""
