"""Holding an export against its model: the patched model before it, the file after it, within the export's own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onnxpatch.errors import RunError, VerificationError
from onnxpatch.exporters.artifact import OutFile
from onnxpatch.exporters.request import Call
from onnxpatch.onnxfile.run_limit import DEFAULT_SECONDS
from onnxpatch.onnxfile.runtime import Graph, have_onnxruntime
from onnxpatch.patched import Patched
from onnxpatch.results.report import Checked, Report
from onnxpatch.verification.eager import Eager, Flatten
from onnxpatch.verification.holding import hold_against
from onnxpatch.verification.input_matching import match_inputs
from onnxpatch.verification.reference import Subject
from onnxpatch.verification.runner import check_patched
from onnxpatch.verification.stopwatch import Stopwatch

_SHARE = 0.8  # of the export's own time may be spent on proving it, beyond what every proof needs
_LEAST = 0.5  # seconds that may be spent on it in any case


@dataclass
class Job:
    """One export on its way: what was asked, and what is known so far."""

    call: Call
    report: Report
    patch_options: dict[str, Any]
    check: bool
    runtime: str | None = None
    found: Subject | None = None
    flatten: Flatten | None = None
    max_seconds: float | None = DEFAULT_SECONDS
    progress: Callable[[str, int, int], None] | None = None
    checked: float = 0.0  # seconds of the patched model's check
    exported: float = 0.0  # seconds of all the rest
    optionals: bool = False  # whether an output becomes ONNX's own optional at the end


def check_before(job: Job, patched: Patched) -> None:
    """The patched model against the unpatched one, in eager: a wrong patch is caught before the export."""
    if job.found is None:
        return
    start, watch = time.perf_counter(), Stopwatch()
    eager = Eager(job.call.model, job.call.inputs, job.flatten)
    names = [f"output {i}" for i in range(len(job.found.example.outputs or ()))]
    for probe in job.found.probes:
        job.report.checks += check_patched(eager, names, [probe], job.report.tolerance)
        if not patched.plan.swaps and not patched.scope.hits:
            break  # nothing acts: the patched model is the model
    job.report.seconds["patched eager"], job.checked = time.perf_counter() - start, watch.seconds
    _raise_if_wrong(job.report, "the patched model differs from the original before any export", True)


def prove(job: Job, out: OutFile) -> None:
    """Hold the file against the unpatched model. Raises VerificationError where it is wrong, or cannot be loaded."""
    assert job.found is not None
    have_onnxruntime()  # its import is no work on this model
    start, watch = time.perf_counter(), Stopwatch()
    try:
        graph = Graph(out.path, job.runtime, job.max_seconds)
    except RunError as error:
        job.report.checks.append(Checked("loading", "the file", "example", {}, error=str(error), status="refused"))
        raise VerificationError(f"the exported graph cannot be loaded: {error}", job.report) from None
    names, order = match_inputs(graph, job.call.inputs, job.call.names_for(graph))
    program = getattr(job.report.program, "exported_program", None)
    asked = job.found.eager.seconds
    left = max(_LEAST, _SHARE * job.exported) - job.checked - asked - watch.seconds
    job.found.find(seconds=(left - job.found.example.seconds) / 2)  # the other half is for the graph
    left -= job.found.eager.seconds - asked
    hold_against(job.report, graph, job.found, names, order, exported=program, progress=job.progress, within=left)
    job.report.seconds["verify"] = time.perf_counter() - start + asked
    what = "the exported graph does not compute what the model computes"
    _raise_if_wrong(job.report, what, job.patch_options["branches"])


def _raise_if_wrong(report: Report, what: str, branches: bool) -> None:
    if report.ok:
        return
    first = report.first_wrong()
    told = first.sentence() if first else "eager gives other outputs each time it is asked: nothing can be proven"
    if first and first.kind == "branch" and not branches:
        told += "\n  (data decides a Python branch of the model: branches=True exports all of them)"
    raise VerificationError(f"{what}: {told}\n{report}", report)
