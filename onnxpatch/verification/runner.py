"""Comparing a graph with eager's answers at every probe, and at sizes that break a dropped guard."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from onnxpatch.errors import RunError
from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.results.report import Checked, DroppedGuard, Frozen, OutputParity, Report
from onnxpatch.verification.comparison import NON_FINITE, compare_all
from onnxpatch.verification.eager import Eager
from onnxpatch.verification.findings import dropped_guards, specialized
from onnxpatch.verification.guards import Guard, breaking_probes, guards_of
from onnxpatch.verification.input_matching import Feed
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.reference import Reference

Progress = Callable[[str, int, int], None]
_ROUNDING = 1e-6
_FIRST = 6  # probes that are run before those at which a guard breaks: they come in the order of how much they tell


def run(
    graphs: Sequence[Graph],
    feed: Feed,
    reference: Reference,
    made: Report,
    *,
    conditions: Any = None,
    progress: Progress | None = None,
) -> Report:
    """Compare the graph with the reference; returns `made`, what is known of the file so far, with what was found.

    graphs: the file, in each of the runtimes that it is to be right in. conditions: the ExportedProgram, whose
    conditions on sizes no ONNX file holds. progress: called with (runtime, done, of).
    """
    start = time.perf_counter()
    broken = _broken(conditions, reference) if conditions is not None else []
    probes = _in_order(reference.probes, broken)
    checks: list[Checked] = []
    frozen: list[Frozen] = []
    guards: list[DroppedGuard] = []
    notes = list(made.notes)
    for graph in graphs:
        here = _checks(graph, feed, reference, probes, made.tolerance, progress)
        checks += here
        # The file is one: what one runtime shows of it is not told again for another.
        frozen += [one for one in specialized(graph, feed, reference.dims, here, probes) if one not in frozen]
        told = {(guard.expression, str(guard.sizes)) for guard in guards if guard.harmful}
        guards = [one for one in guards if one.harmful] + [
            one for one in dropped_guards(graph, here, probes, broken) if (one.expression, str(one.sizes)) not in told
        ]
        notes += [*([graph.note] if graph.note else []), *_skipped(reference, graph, len(probes) - len(here))]
    return replace(
        made,
        runtime=", ".join(graph.runtime for graph in graphs),
        dimensions={dim.name: dim.size for dim in reference.dims},
        checks=checks,
        frozen=frozen,
        guards=guards,
        refused=reference.oracle.refused,
        first_refusal=reference.oracle.first_refusal,
        notes=list(dict.fromkeys(notes)),
        seconds={**made.seconds, "verify": reference.seconds + time.perf_counter() - start},
    )


def _checks(
    graph: Graph,
    feed: Feed,
    reference: Reference,
    probes: Sequence[Probe],
    tolerance: float,
    progress: Progress | None,
) -> list[Checked]:
    """What one runtime makes of the probes, up to the limit that was asked for."""
    checks: list[Checked] = []
    for probe in probes:
        if checks and reference.budget.over():
            break
        if progress:
            progress(graph.runtime, len(checks), len(probes))
        check = _check(graph, feed, probe, tolerance)
        checks.append(_excused(check, probe, reference.eager, tolerance) if check.status == "wrong" else check)
        if graph.stopped:  # every further run may take as long
            break
    return checks


def _broken(conditions: Any, reference: Reference) -> list[tuple[Guard, Probe]]:
    guards = guards_of(conditions, reference.inputs, reference.dims)
    return breaking_probes(guards, reference.oracle) if guards else []


def _in_order(probes: Sequence[Probe], broken: Sequence[tuple[Guard, Probe]]) -> list[Probe]:
    ordered = (*probes[:_FIRST], *(probe for _, probe in broken), *probes[_FIRST:])
    return list({id(probe): probe for probe in ordered}.values())


def _skipped(reference: Reference, graph: Graph, not_run: int) -> list[str]:
    """What the budget left out, for the report."""
    if graph.stopped:
        return [f"{not_run} more inputs were not tried"] if not_run else []
    budget, left_out = reference.budget, len(reference.oracle.left_out)
    if not_run or reference.oracle.cut_short:
        return [f"max_seconds={budget.max_seconds:g} was reached: {left_out + not_run} more inputs were not compared"]
    return [f"{left_out} more sizes were skipped: the verification budget was reached"] if left_out else []


def check_graph(graph: Graph, feed: Feed, probes: Iterable[Probe], tolerance: float) -> list[Checked]:
    """Run the graph at every probe."""
    return [_check(graph, feed, probe, tolerance) for probe in probes]


def _check(graph: Graph, feed: Feed, probe: Probe, tolerance: float) -> Checked:
    head = Checked(graph.runtime, probe.label, probe.kind, probe.sizes)
    try:
        found = graph.run(feed.of(probe.values))
    except RunError as error:
        return replace(head, error=str(error), status="refused", node=error.node or "")
    outputs = compare_all(graph.outputs, probe.expected, found, tolerance)
    wrong = any(output.reason for output in outputs)
    return replace(head, outputs=tuple(outputs), status="wrong" if wrong else "right")


def excuse_unsteady(
    checks: Sequence[Checked], probes: Sequence[Probe], eager: Eager, tolerance: float
) -> list[Checked]:
    """Mark wrong answers that eager itself does not hold to: asked again with inputs moved by one rounding, its own
    output moves as far, or comes and goes to infinity. Shapes, dtypes and refusals are never excused."""
    return [_excused(c, p, eager, tolerance) if c.status == "wrong" else c for c, p in zip(checks, probes, strict=True)]


def _excused(check: Checked, probe: Probe, eager: Eager, tolerance: float) -> Checked:
    wrong = [i for i, output in enumerate(check.outputs) if not output.ok]
    if any(check.outputs[i].first_index is None for i in wrong):
        return check  # shapes and dtypes
    names = [output.name for output in check.outputs]
    unmoved = set(wrong)
    for seed, by in itertools.product((3, 4, 5), (+_ROUNDING, -_ROUNDING)):
        answer = eager.ask([_nudged(v, by, seed) for v in probe.values])
        again = compare_all(names, probe.expected, answer.outputs or (), tolerance)
        if answer.outputs is not None and len(again) == len(names):
            unmoved -= {i for i in unmoved if _as_far(again[i], check.outputs[i])}
        if not unmoved:
            return replace(check, status="unsteady")
    return check


def _as_far(again: OutputParity, found: OutputParity) -> bool:
    """Whether eager moved as far; where the graph differs in what is finite, eager must have done so, too."""
    if found.reason == NON_FINITE:
        return again.reason == NON_FINITE
    return again.first_index is not None and again.relative >= found.relative / 2


def _nudged(value: Any, by: float, seed: int) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    noise = torch.rand(value.shape, generator=torch.Generator().manual_seed(seed)).to(value)
    return value * (1 + by * (noise - 0.25))
