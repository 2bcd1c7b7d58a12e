"""`doctor`: finds why a model does not export, or exports wrong: the smallest module at fault, and what cures it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from onnxpatch.diagnosis.cures.treatment import treat
from onnxpatch.diagnosis.parts.part_trials import Progress
from onnxpatch.diagnosis.parts.recorded_part import recorded_part
from onnxpatch.diagnosis.parts.search import Search
from onnxpatch.diagnosis.trials.trial import Subject
from onnxpatch.errors import InputError, ScriptedModelError
from onnxpatch.exporters.request import ExportRequest, chosen_exporter
from onnxpatch.inputs.held_models import as_module
from onnxpatch.inputs.validate import check_callbacks, check_numbers, check_runnable, is_number
from onnxpatch.messages.progress import shown
from onnxpatch.patching.process_state import process_state_kept
from onnxpatch.patching.registry import REGISTRY, Registry
from onnxpatch.results.attempt_result import AttemptResult
from onnxpatch.results.diagnosis import Diagnosis
from onnxpatch.verification.probe import Budget
from onnxpatch.verification.reference import Reference
from onnxpatch.versions import versions


def doctor(
    model: torch.nn.Module,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    dynamo: bool | None = None,
    exporter: str | None = None,
    opset_version: int = 18,
    tolerance: float = 1e-3,
    max_probes: int = 16,
    data: Sequence[Any] = (),
    proposals: bool = True,
    budget: float = 180.0,
    registry: Registry = REGISTRY,
    progress: Progress | bool | None = None,
    attempts: Sequence[object] = (),
) -> Diagnosis:
    """Find why a model does not export, or exports wrong, and what cures it.

    Takes the arguments of torch.onnx.export, and tries the plain export, without any patch. Where that is refused, or
    wrong at some size or data that the model itself accepts, every submodule is exported alone, with the inputs that it
    gets inside the model, from the top down until the smallest one that fails by itself is found. Its line is taken
    from the exporter's error, its warnings and the sizes that it fixed. Cures are tried on that module: the registered
    patches, branches=True, the other exporter. Where the plain export is right and the patched one is wrong, the
    patches are bisected for the one at fault.

    exporter: "dynamo", "trace" or "script"; or torch's own dynamo=False.
    dynamic_shapes, dynamic_axes, input_names, opset_version: as for torch.onnx.export.
    tolerance: relative error up to which the graph is right. max_probes: the most inputs it is compared at.
    data: more inputs to compare at, each args or (args, kwargs).
    proposals: False to find the culprit only.
    budget: seconds after which no further export is started.
    progress: called with (what is exported, exports so far, 0); True writes them on stderr.
    attempts: what `export` tried on this model, `report.attempts` or `error.attempts`: cures that it tried on the whole
    model are not tried there again, and the one that it delivered is proposed first.

    Returns a Diagnosis: `.ok`, `.culprits`, `.proposals`. The model is left as it was.
    Raises InputError where the arguments do not fit or the model itself refuses the example, UnknownExporterError for
    another exporter, ScriptedModelError for a torch.jit.ScriptModule.
    """
    check_numbers(tolerance, max_probes)
    check_callbacks(progress=progress)
    if not is_number(budget):
        raise InputError(f"budget={budget!r}: give the seconds after which no further export is started")
    start = time.perf_counter()
    model = as_module(model)
    request = ExportRequest.parse(
        model, args, kwargs, chosen_exporter(exporter, dynamo), dynamic_shapes=dynamic_shapes,
        dynamic_axes=dynamic_axes, input_names=input_names, opset_version=opset_version,
    )  # fmt: skip
    if isinstance(model, torch.jit.ScriptModule):
        raise ScriptedModelError(
            "the model is scripted, so that its parts cannot be exported alone: pass the nn.Module that was scripted"
        )
    check_runnable(model)
    reference = Reference(model, request.inputs, request.dims, Budget.starting_now(max_probes), data=data)
    root = Subject(model, request.inputs, request.specs, reference.probes, request.input_names)
    diagnosis = Diagnosis(type(model).__name__, request.exporter, request.opset, versions=versions())
    diagnosis.dimensions = {dim.name: dim.size for dim in request.dims}
    if model.training:
        diagnosis.notes.append("the model is in training mode: call model.eval() first, unless that is what you export")
    made = [one for one in attempts if isinstance(one, AttemptResult)]
    search = Search(root, diagnosis, tolerance, budget, registry, shown(progress), made)
    with process_state_kept():
        found_parts = search.run()
        treat(search, found_parts, proposals)
    diagnosis.recorded = tuple(map(recorded_part, found_parts)) if search.whole.fails else ()
    diagnosis.seconds = time.perf_counter() - start
    return diagnosis
