"""Why a graph is wrong where it is: sizes that came out fixed, conditions that were dropped."""

from __future__ import annotations

from collections.abc import Sequence

from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.results.report import Checked, DroppedGuard, Frozen, Report
from onnxpatch.verification.guards import Guard
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.specialized_dims import frozen_at, frozen_inputs, frozen_nodes, source_of

_MOST = 5


def add_findings(
    report: Report,
    graph: Graph,
    dims: Sequence[DynamicDim],
    names: Sequence[str],
    order: Sequence[int],
    probes: Sequence[Probe],
    broken: Sequence[tuple[Guard, Probe]],
) -> None:
    """Fill in `report.frozen` and `report.guards` from the checks, the last of which are those of `probes`."""
    checks = report.checks[-len(probes) :]
    report.frozen += frozen_inputs(graph, names, order, dims)
    bad = [(c, p) for c, p in zip(checks, probes, strict=True) if not c.ok and p.sizes != probes[0].sizes]
    bad.sort(key=lambda pair: _moved(probes[0], pair[1]).count(","))  # H alone tells more than H and W together
    for check, probe in bad[: 2 * _MOST]:
        found = frozen_at(graph, check.node, _moved(probes[0], probe)) if check.node else None
        if found and found not in report.frozen:
            report.frozen.append(found)
    silent = next((p for c, p in reversed(bad) if c.status == "wrong"), None)
    if silent is not None:
        report.frozen += list(frozen_nodes(graph, names, order, probes[0], silent))[:_MOST]
    report.frozen = _fewest_moved(report.frozen)
    status = {id(probe): check for check, probe in zip(checks, probes, strict=True)}
    pins = [guard for guard, _ in broken if guard.expression.startswith("Eq(")]
    for guard, probe in broken:
        blamed = guard in pins or all(pin.holds(probe.sizes) is not False for pin in pins)
        report.guards.append(_dropped(guard, probe, status[id(probe)], graph, blamed))


def _fewest_moved(found: Sequence[Frozen]) -> list[Frozen]:
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
