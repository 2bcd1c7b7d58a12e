"""A graph held against the answers of eager: run at every probe, and at sizes that break a dropped guard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.results.report import Report
from onnxpatch.verification.findings import add_findings
from onnxpatch.verification.guards import Guard, breaking_probes, guards_of
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.probe_search import ProbeSearch
from onnxpatch.verification.reference import Subject
from onnxpatch.verification.runner import check_graph, excuse_unsteady
from onnxpatch.verification.stopwatch import Stopwatch

_LEAST = 6  # probes that are run whatever they cost: they come in the order of how much they tell


def hold_against(
    report: Report,
    graph: Graph,
    found: Subject,
    names: Sequence[str],
    order: Sequence[int],
    *,
    exported: Any = None,
    progress: Callable[[str, int, int], None] | None = None,
    within: float | None = None,
) -> None:
    """Run the graph at every probe, and at sizes that break a dropped guard; write what was found into the report.

    within: seconds after which no more than the most telling probes are run; those left out are told of.
    """
    watch = Stopwatch()
    report.runtime = graph.runtime
    report.notes += [graph.note] if graph.note else []
    report.dimensions = {dim.name: dim.size for dim in found.dims}
    guards = guards_of(exported, found.inputs, found.dims) if exported is not None else []
    broken = _broken(guards, found.search, 2.0 if within is None else min(2.0, max(0.2, within))) if guards else []
    first, rest = found.probes[:_LEAST], found.probes[_LEAST:]
    everything = {id(probe): probe for probe in (*first, *(probe for _, probe in broken), *rest)}
    probes = list(everything.values())
    least = _LEAST + len(broken)
    for done, probe in enumerate(probes):
        if done >= least and within is not None and watch.seconds > within:
            del probes[done:]
            break
        if progress:
            progress(graph.runtime, done, len(probes))
        checks = check_graph(graph, names, order, [probe], report.tolerance)
        report.checks += excuse_unsteady(checks, [probe], found.eager, report.tolerance)
        if graph.stopped:  # every further run may take as long
            report.notes += [f"{len(probes) - done - 1} more inputs were not tried"] if done + 1 < len(probes) else []
            del probes[done + 1 :]
            break
    left_out = len(found.search.asking.left_out) + len(everything) - len(probes)
    if within is not None and left_out:
        report.notes.append(f"{left_out} more inputs were left out, to take no longer than the export")
    tried = {id(probe) for probe in probes}
    broken = [(guard, probe) for guard, probe in broken if id(probe) in tried]
    report.refused, report.first_refusal = found.search.refusals.count, found.search.refusals.first
    add_findings(report, graph, found.dims, names, order, probes, broken)


def _broken(guards: Sequence[Guard], search: ProbeSearch, seconds: float) -> list[tuple[Guard, Probe]]:
    search.limits.seconds = max(search.limits.seconds, search.eager.seconds + seconds)
    return breaking_probes(guards, search, seconds=seconds)
