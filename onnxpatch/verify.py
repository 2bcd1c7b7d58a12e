"""`verify`: is this ONNX file what the model computes, at the sizes and on the data that the model accepts?"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from onnxpatch.arguments import shapes
from onnxpatch.arguments.dims import dynamic_dims
from onnxpatch.arguments.figures import check_figures
from onnxpatch.arguments.inputs import Inputs
from onnxpatch.checking.check import check_graph, excuse_unsteady
from onnxpatch.checking.feeding import declared_by, match_inputs, refuse_unfitting
from onnxpatch.checking.findings import add_findings
from onnxpatch.checking.guards import Guard, breaking_probes, guards_of
from onnxpatch.checking.probe import Limits, Probe
from onnxpatch.checking.probes import ProbeSearch
from onnxpatch.checking.reference import Flatten
from onnxpatch.checking.runtime import Graph, RunError
from onnxpatch.checking.stopwatch import Stopwatch
from onnxpatch.checking.subject import Subject, subject
from onnxpatch.checking.timelimit import TimeLimit, limited
from onnxpatch.errors import InputError
from onnxpatch.reporting import provenance
from onnxpatch.reporting.report import Report
from onnxpatch.versions import versions

_CAPTURE = 60.0  # seconds for torch.export, which serves for its conditions alone here
_LEAST = 6  # probes that are run whatever they cost: they come in the order of how much they tell


def verify(
    file: str | os.PathLike[str],
    model: torch.nn.Module,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    tolerance: float = 1e-3,
    max_probes: int = 16,
    data: Sequence[Any] = (),
    guards: bool = True,
    runtime: str | None = None,
    flatten: Flatten | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Report:
    """Hold an ONNX file, however it was made, against the model as it is now.

    args, kwargs: the example call; dynamic_shapes or dynamic_axes: the sizes that may change, in any form that torch
    takes (left out: those that the file itself shows as free). input_names: the file's inputs in the order of the
    arguments, where they are named otherwise. tolerance: the largest difference allowed, as a share of the output's
    largest magnitude (float32; float16 1e-2, bfloat16 6e-2, whole numbers and bools exact). data: more inputs to try,
    each args or (args, kwargs), special values included. guards: also run torch.export on the model and probe the
    sizes at which its conditions break. runtime: 'onnxruntime' or 'reference'. flatten: output -> its tensors in the
    order of the graph's outputs. progress: called with (stage, done, of).

    Returns a Report; `report.ok` is the verdict. The model is as it was afterwards.
    Raises InputError for what cannot be compared: no file, a corrupt one, inputs that do not fit, an example that the
    model refuses.
    """
    start = time.perf_counter()
    check_figures(tolerance, max_probes)
    inputs = Inputs(model, args, kwargs)
    report = Report(str(file), type(model).__name__, tolerance=tolerance, versions=versions())
    try:
        graph = Graph(file, runtime)
    except RunError as error:
        raise InputError(f"{file}: {error}") from None
    names, order = match_inputs(graph, inputs, input_names)
    specs = shapes.read(inputs, dynamic_shapes, dynamic_axes, names if input_names else None, "trace", graph.outputs)
    if dynamic_shapes is None and dynamic_axes is None:
        specs = declared_by(graph, names, order, inputs)
    refuse_unfitting(graph, inputs, names, order, specs)
    dims = dynamic_dims(inputs, specs)
    found = subject(model, inputs, dims, limits=Limits(probes=max_probes), flatten=flatten, data=data)
    report.opset = next((o.version for o in graph.proto.opset_import if o.domain in ("", "ai.onnx")), None)
    exported = _captured(model, inputs, specs, report) if guards and dims else None
    made = provenance.read(graph.proto)
    if made is not None:
        report.notes.append(made.sentence())
    if getattr(model, "training", False):
        report.notes.append("the model is in training mode: call model.eval() first, unless that is what was exported")
    unfed = [leaf.name for leaf in inputs.leaves if leaf.is_tensor and leaf.index not in order]
    if unfed:
        report.notes.append(f"the file has no input for {', '.join(unfed)} of the example")
    hold_against(report, graph, found, names, order, exported=exported, progress=progress)
    report.seconds["verify"] = time.perf_counter() - start
    return report


def _captured(model: Any, inputs: Inputs, specs: Sequence[shapes.LeafSpec], report: Report) -> Any:
    """The model's ExportedProgram, for its guards alone; None where torch.export refuses the model, or ponders."""
    from onnxpatch.checking.capture import capture

    try:
        with limited(_CAPTURE):
            return capture(model, inputs, specs)
    except TimeLimit:
        report.notes.append(f"torch.export took longer than {_CAPTURE:g} s: its conditions on sizes were not read")
    except Exception:
        pass
    return None


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
    left_out = len(found.search.asking.left_out) + len(everything) - len(probes)
    if within is not None and left_out:
        report.notes.append(f"{left_out} more inputs were left out, to take no longer than the export")
    report.refused, report.first_refusal = found.search.refusals.count, found.search.refusals.first
    add_findings(report, graph, found.dims, names, order, probes, broken)


def _broken(guards: Sequence[Guard], search: ProbeSearch, seconds: float) -> list[tuple[Guard, Probe]]:
    search.limits.seconds = max(search.limits.seconds, search.eager.seconds + seconds)
    return breaking_probes(guards, search, seconds=seconds)
