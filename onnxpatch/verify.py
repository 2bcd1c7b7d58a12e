"""`verify`: is this ONNX file what the model computes, at the sizes and on the data that the model accepts?"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from onnxpatch.errors import InputError, RunError
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.dims import dynamic_dims
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.inputs.validate import check_numbers
from onnxpatch.onnxfile import stamp
from onnxpatch.onnxfile.run_limit import DEFAULT_SECONDS
from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.onnxfile.time_limit import TimeLimit, limited
from onnxpatch.results.report import Report
from onnxpatch.verification.eager import Flatten
from onnxpatch.verification.holding import hold_against
from onnxpatch.verification.input_matching import declared_by, match_inputs, refuse_unfitting
from onnxpatch.verification.probe import Limits
from onnxpatch.verification.reference import subject
from onnxpatch.versions import versions

_CAPTURE = 60.0  # seconds for torch.export, which serves for its conditions alone here


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
    max_seconds: float | None = DEFAULT_SECONDS,
    progress: Callable[[str, int, int], None] | None = None,
) -> Report:
    """Hold an ONNX file, however it was made, against the model as it is now.

    args, kwargs: the example call; dynamic_shapes or dynamic_axes: the sizes that may change, in any form that torch
    takes (left out: those that the file itself shows as free). input_names: the file's inputs in the order of the
    arguments, where they are named otherwise. tolerance: the largest difference allowed, as a share of the output's
    largest magnitude (float32; float16 1e-2, bfloat16 6e-2, whole numbers and bools exact). data: more inputs to try,
    each args or (args, kwargs), special values included. guards: also run torch.export on the model and probe the
    sizes at which its conditions break. runtime: 'onnxruntime' or 'reference'. flatten: output -> its tensors in the
    order of the graph's outputs. max_seconds: how long one run of the graph may take, 120 unless said otherwise, None
    for no limit; a graph that is stopped is wrong. progress: called with (stage, done, of).

    Returns a Report; `report.ok` is the verdict. The model is as it was afterwards.
    Raises InputError for what cannot be compared: no file, a corrupt one, inputs that do not fit, an example that the
    model refuses.
    """
    start = time.perf_counter()
    check_numbers(tolerance, max_probes)
    inputs = Inputs(model, args, kwargs)
    report = Report(str(file), type(model).__name__, tolerance=tolerance, versions=versions())
    try:
        graph = Graph(file, runtime, max_seconds)
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
    made = stamp.read(graph.proto)
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
    """The model's ExportedProgram, for its guards alone; None where torch.export refuses the model or is too slow."""
    from onnxpatch.exporters.program import capture

    try:
        with limited(_CAPTURE):
            return capture(model, inputs, specs)
    except TimeLimit:
        report.notes.append(f"torch.export took longer than {_CAPTURE:g} s: its conditions on sizes were not read")
    except Exception:  # torch.export refuses with errors of any class; the file is verified without its guards then
        return None
    return None
