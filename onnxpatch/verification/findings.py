"""Why a graph is wrong where it is: sizes that came out fixed, conditions that were dropped."""

from __future__ import annotations

from collections.abc import Sequence

from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.results.report import Checked, DroppedGuard, Frozen
from onnxpatch.verification.guards import Guard
from onnxpatch.verification.input_matching import Feed
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.specialized_dims import frozen_at, frozen_inputs, frozen_nodes, source_of

_MOST = 5


def specialized(
    graph: Graph, feed: Feed, dims: Sequence[DynamicDim], checks: Sequence[Checked], probes: Sequence[Probe]
) -> list[Frozen]:
    """Sizes declared dynamic that the file keeps at the example's. checks: those of the first of the probes."""
    found = frozen_inputs(graph, feed, dims)
    example = probes[0]
    bad = [(c, p) for c, p in zip(checks, probes, strict=False) if not c.ok and p.sizes != example.sizes]
    bad.sort(key=lambda pair: _moved(example, pair[1]).count(","))  # H alone tells more than H and W together
    for check, probe in bad[: 2 * _MOST]:
        at_node = frozen_at(graph, check.node, _moved(example, probe)) if check.node else None
        if at_node and at_node not in found:
            found.append(at_node)
    silent = next((p for c, p in reversed(bad) if c.status == "wrong"), None)
    if silent is not None:
        found += list(frozen_nodes(graph, feed, example, silent))[:_MOST]
    return _fewest_moved(found)


def dropped_guards(
    graph: Graph, checks: Sequence[Checked], probes: Sequence[Probe], broken: Sequence[tuple[Guard, Probe]]
) -> list[DroppedGuard]:
    """The guards that a probe breaks, each with what the graph makes of that probe. Those not run are left out."""
    status = {id(probe): check for check, probe in zip(checks, probes, strict=False)}
    ran = [(guard, probe) for guard, probe in broken if id(probe) in status]
    pins = [guard for guard, _ in ran if guard.expression.startswith("Eq(")]
    found = []
    for guard, probe in ran:
        blamed = guard in pins or all(pin.holds(probe.sizes) is not False for pin in pins)
        found.append(_dropped(guard, probe, status[id(probe)], graph, blamed))
    return found


def _fewest_moved(found: list[Frozen]) -> list[Frozen]:
    """A node that fails when H alone moves is not named again for H and W together."""
    moved = [(set(one.dimension.split(", ")), one) for one in found]
    return [one for names, one in moved if not any(less < names and other.node == one.node for less, other in moved)]


def _moved(example: Probe, probe: Probe) -> str:
    return ", ".join(name for name, size in probe.sizes.items() if example.sizes.get(name) != size)


def _dropped(guard: Guard, probe: Probe, check: Checked, graph: Graph, blamed: bool) -> DroppedGuard:
    """blamed: no other condition that this probe breaks, an equality, explains it better."""
    node = next((n for n in graph.proto.graph.node if check.node and n.name == check.node), None)
    source = guard.source or (source_of(node) if node is not None else "")
    return DroppedGuard(guard.expression, probe.sizes, blamed and not check.ok, source, check.node)
