"""`doctor`: finds why a model does not export, or exports wrong: the smallest module at fault, and what cures it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from onnxpatch.diagnosis.cures.treatment import treat
from onnxpatch.diagnosis.parts.search import Progress, Search
from onnxpatch.diagnosis.trials.attempt import Subject
from onnxpatch.errors import InputError, UnknownExporterError
from onnxpatch.exporters.request import example_of
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.dims import dynamic_dims
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.inputs.validate import check_figures
from onnxpatch.patching.registry import REGISTRY, Registry
from onnxpatch.results.diagnosis import Diagnosis
from onnxpatch.settings import EXPORTERS, Exporter
from onnxpatch.verification.probe import Limits
from onnxpatch.verification.reference import subject as ask_eager
from onnxpatch.versions import versions


def doctor(
    model: torch.nn.Module,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    dynamo: bool = True,
    exporter: Exporter | None = None,
    opset_version: int = 18,
    tolerance: float = 1e-3,
    max_probes: int = 16,
    data: Sequence[Any] = (),
    proposals: bool = True,
    budget: float = 180.0,
    registry: Registry = REGISTRY,
    progress: Progress | None = None,
) -> Diagnosis:
    """Find why a model does not export, or exports wrong, and what cures it.

    Takes the arguments of torch.onnx.export, and tries the plain export, without any patch. Where that is refused, or
    wrong at some size or data that the model itself accepts, every submodule is exported alone, with the inputs that it
    gets inside the model, from the top down until the smallest one that fails by itself is found. Its line is taken
    from the exporter's error, its warnings and the sizes that it fixed. Cures are tried on that module: the registered
    patches, branches=True, the other exporter. Where the plain export is right and the patched one is wrong, the
    patches are bisected for the one at fault.

    exporter: "dynamo", "trace" or "script", in place of dynamo=True or False.
    dynamic_shapes, dynamic_axes, input_names, opset_version: as for torch.onnx.export.
    tolerance: relative error up to which the graph is right. max_probes: the most inputs it is compared at.
    data: more inputs to compare at, each args or (args, kwargs).
    proposals: False to find the culprit only.
    budget: seconds after which no further export is started.
    progress: called with (what is exported, exports so far, 0).

    Returns a Diagnosis: `.ok`, `.culprits`, `.proposals`. The model is left as it was.
    Raises InputError where the arguments do not fit or the model itself refuses the example, UnknownExporterError for
    another exporter.
    """
    chosen: Exporter = exporter or ("dynamo" if dynamo else "trace")
    if chosen not in EXPORTERS:
        raise UnknownExporterError(f"exporter={exporter!r} is not known: use one of {', '.join(EXPORTERS)}")
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    check_figures(tolerance, max_probes, opset_version)
    args, kwargs, _ = example_of(model, args, kwargs, {})
    inputs = Inputs(model, args, kwargs)
    specs = shapes.read(inputs, dynamic_shapes, dynamic_axes, input_names, chosen)
    dims = dynamic_dims(inputs, specs)
    found = ask_eager(model, inputs, dims, limits=Limits(probes=max_probes), data=data)
    root = Subject(model, inputs, specs, found.probes, input_names)
    diagnosis = Diagnosis(type(model).__name__, chosen, opset_version, versions=versions())
    diagnosis.dimensions = {dim.name: dim.size for dim in dims}
    if model.training:
        diagnosis.notes.append("the model is in training mode: call model.eval() first, unless that is what you export")
    start = time.perf_counter()
    search = Search(root, diagnosis, tolerance, budget, registry, progress)
    found_parts = search.run()
    treat(search, found_parts, proposals)
    diagnosis.seconds = found.eager.seconds + time.perf_counter() - start
    return diagnosis
