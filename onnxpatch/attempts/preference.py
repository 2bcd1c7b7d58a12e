"""`prefer=`: chooses the fastest or the smallest of the files that are right.

The files are run in turns, so that other load on the machine affects all of them alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch

from onnxpatch.attempts.attempt import Attempt
from onnxpatch.attempts.attempt_log import AttemptLog
from onnxpatch.attempts.one_attempt import Proven
from onnxpatch.onnxfile.mapped_weights import bytes_beside
from onnxpatch.onnxfile.runtime import Graph, load_graphs
from onnxpatch.settings import Exporter
from onnxpatch.verification.input_matching import match_inputs
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.reference import Reference

Prefer = Literal["latency", "size"]
_ROUNDS = 15
_WORTH = 0.97  # of the first file's time: less of a gain may be noise


def best_of(log: AttemptLog, found: Proven, exporters: Sequence[Exporter], prefer: Prefer) -> Proven:
    """Make the attempts that may be better than `found`, and choose among all that are right."""
    for attempt in _rivals(log.first, found.attempt, exporters):
        if log.outcome_of(attempt) is None and not log.over:
            log.attempt(attempt)
    proven = [one for one in log.made if isinstance(one, Proven) and one.report.ok] or [found]
    figures: Sequence[float]
    if prefer == "size":
        figures, name, share = [bytes_beside(one.exported.path) for one in proven], "bytes", 1.0
    else:  # times vary from run to run
        figures, name, share = _milliseconds(log, proven), "milliseconds", _WORTH
    for one, figure in zip(proven, figures, strict=True):
        log.figures[one.attempt] = {name: figure}
    least, best = min(zip(figures, proven, strict=True), key=lambda pair: pair[0])
    own = next((figure for one, figure in zip(proven, figures, strict=True) if one is found), None)
    # Where nothing is clearly better, the file that was asked for is delivered.
    return found if own is not None and least >= share * own else best


def _rivals(first: Attempt, found: Attempt, exporters: Sequence[Exporter]) -> Iterator[Attempt]:
    """Other attempts that may be right: with and without patches, with each exporter."""
    for exporter in exporters:
        yield replace(found, exporter=exporter)
        yield replace(first, exporter=exporter)
        if not found.branches:
            yield replace(first, exporter=exporter).as_plain()


def _milliseconds(log: AttemptLog, proven: Sequence[Proven]) -> list[float]:
    """The time of one run at the example and one at the largest probe, together; the median of several rounds."""
    reference = log.shared.reference
    assert reference is not None
    runs = [_loaded(one, log) for one in proven]
    times: list[list[float]] = [[] for _ in proven]
    for _ in range(_ROUNDS):
        for (graph, feed), kept in zip(runs, times, strict=True):
            start = time.perf_counter()
            for probe in _measured_at(reference):
                graph.run(feed.of(probe.values))
            kept.append(1000 * (time.perf_counter() - start))
        if log.shared.budget.over():
            break
    return [statistics.median(kept) for kept in times]


def _loaded(one: Proven, log: AttemptLog) -> tuple[Graph, Any]:
    # Of several runtimes, the first is measured.
    graph = load_graphs(one.exported.path, log.shared.runtime, log.shared.budget.run_seconds, log.shared.providers)[0]
    request = one.exported.request
    return graph, match_inputs(graph, request.inputs, request.names_among([node.name for node in graph.inputs]))


def _measured_at(reference: Reference) -> list[Probe]:
    """The example, and the largest input that was compared."""
    example, largest = reference.probes[0], max(reference.probes, key=_elements)
    return [example] if largest is example else [example, largest]


def _elements(probe: Probe) -> int:
    return sum(value.numel() for value in probe.values if isinstance(value, torch.Tensor))
