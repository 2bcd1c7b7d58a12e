"""Holding a graph, or the patched model, against eager's answers at every probe."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from onnxpatch.errors import RunError
from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.results.report import Checked, OutputParity
from onnxpatch.verification.comparison import NON_FINITE, compare_all
from onnxpatch.verification.eager import Eager
from onnxpatch.verification.probe import Probe

_ROUNDING = 1e-6


def check_graph(
    graph: Graph, names: Sequence[str], order: Sequence[int], probes: Iterable[Probe], tolerance: float
) -> list[Checked]:
    """Run the graph at every probe. names: the graph's inputs; order: the leaf that feeds each of them."""
    return [_check_graph(graph, names, order, probe, tolerance) for probe in probes]


def _check_graph(graph: Graph, names: Sequence[str], order: Sequence[int], probe: Probe, tolerance: float) -> Checked:
    head = Checked(graph.runtime, probe.label, probe.kind, probe.sizes)
    try:
        found = graph.run({name: probe.values[leaf] for name, leaf in zip(names, order, strict=True)})
    except RunError as error:
        return replace(head, error=str(error), status="refused", node=error.node or "")
    return _judged(head, compare_all(graph.outputs, probe.expected, found, tolerance))


def check_patched(eager: Eager, names: Sequence[str], probes: Iterable[Probe], tolerance: float) -> list[Checked]:
    """Ask the patched model, in eager, at every probe."""
    checks = []
    for probe in probes:
        head = Checked("patched eager", probe.label, probe.kind, probe.sizes)
        answer = eager.ask(probe.values)
        if answer.outputs is None:
            checks.append(replace(head, error=answer.error or "", status="refused"))
            continue
        checks.append(_judged(head, compare_all(names, probe.expected, answer.outputs, tolerance)))
    return checks


def _judged(head: Checked, outputs: Sequence[OutputParity]) -> Checked:
    wrong = any(not output.ok for output in outputs)
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
