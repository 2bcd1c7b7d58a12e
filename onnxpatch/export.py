"""`export`: patch, export, hold the graph against the unpatched model, restore; a wrong file is never left behind."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from onnxpatch.control_flow.optional_outputs.output_names import name_outputs
from onnxpatch.control_flow.optional_outputs.reference import flatten_reference
from onnxpatch.errors import ExportError, InputError, ScriptedModelError
from onnxpatch.exporters.artifact import OutFile
from onnxpatch.exporters.explain import explained
from onnxpatch.exporters.request import Call, run_exporter, split_options
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.dims import dynamic_dims
from onnxpatch.inputs.example import declared_example, has_example
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.inputs.validate import check_numbers
from onnxpatch.onnxfile.optional_type import wants_optionals, write_optionals
from onnxpatch.onnxfile.run_limit import DEFAULT_SECONDS, checked_limit
from onnxpatch.onnxfile.stamp import stamp
from onnxpatch.patched import Patched, patch_model
from onnxpatch.patching.digest import digest
from onnxpatch.patching.model_state import Snapshot
from onnxpatch.results.report import Report
from onnxpatch.verification.eager import Flatten
from onnxpatch.verification.exported import Job, check_before, prove
from onnxpatch.verification.probe import Limits
from onnxpatch.verification.reference import subject
from onnxpatch.verification.stopwatch import Stopwatch
from onnxpatch.versions import versions

_NOTHING = (
    "the model returns no tensor on the example, so there is nothing to export: give an example on which it does, "
    "or branches=True, which exports both"
)


def export(
    model: torch.nn.Module,
    args: Any = (),
    f: Any = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamo: bool = True,
    script: bool = False,
    external_data: bool = False,
    only: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    image_size: int | tuple[int, int] | None = None,
    branches: bool = False,
    check: bool = True,
    tolerance: float = 1e-3,
    max_probes: int = 16,
    data: Sequence[Any] = (),
    runtime: str | None = None,
    flatten: Flatten | None = None,
    max_seconds: float | None = DEFAULT_SECONDS,
    progress: Callable[[str, int, int], None] | None = None,
    **options: Any,
) -> Report:
    """Export `model` to ONNX with its patches applied, and prove the file against the model as it is without them.

    The arguments of torch.onnx.export keep their names and meaning, with both exporters: `dynamic_shapes` (tuple, or
    dict by argument name; strings, torch.export.Dim, hints, ints) and `dynamic_axes` (by input name) are each turned
    into what the exporter wants; opset 18 by default; one file unless it exceeds 2 GB or external_data=True. `f` may be
    a path, a binary file object, or None (the file is checked and dropped). `script` compiles the patched model with
    torch.jit.script first (dynamo=False).

    only, exclude, image_size, branches and other keywords: see `patched`. check=False exports without comparing.
    tolerance: largest difference allowed, as a share of an output's largest magnitude (float32; float16 1e-2, bfloat16
    6e-2; whole numbers and bools exact). max_probes: inputs compared; other data, every branch and
    what a dropped guard asks for are compared in any case.
    data: more inputs to compare at, each args or (args, kwargs). flatten: turns an output of the unpatched model into
    its tensors in the graph's order. max_seconds: how long one run of the graph may take while it is compared, 120
    unless said otherwise, None for no limit. progress: called with (stage, done, of).

    Compared are the unpatched model, the patched model and the ONNX runtime, at the example, on other data, and at
    other sizes of every dynamic dimension that the unpatched model accepts. Python numbers among the arguments are
    constants of the export.

    Returns a Report (`.ok`, `.checks`, `.program`). The model comes back as it was, also after an error.
    Raises InputError (what was handed in cannot be used), ExportError (the exporter refused; chained), and
    VerificationError (first wrong output, its size, its error; no file is left, an older one stays as it was).
    """
    exporter = "dynamo" if dynamo else "script" if script else "trace"
    _refuse_what_cannot_be(model, exporter, script, check, options)
    check_numbers(tolerance, max_probes, opset_version)
    limit = checked_limit(max_seconds)
    torch_options, patch_options = split_options(options, inspect.signature(export).parameters)
    brought = None if has_example(args, kwargs) else declared_example(model)
    if brought is not None:
        args, kwargs = brought.args, brought.kwargs
        input_names, output_names = input_names or brought.input_names, output_names or brought.output_names
        if dynamic_shapes is None and dynamic_axes is None:
            dynamic_shapes = brought.dynamic_shapes
    inputs = Inputs(model, args, kwargs)
    specs = shapes.read(inputs, dynamic_shapes, dynamic_axes, input_names, exporter, output_names or ())
    call = Call(
        model, inputs, specs, exporter, opset_version or 18, input_names, output_names, external_data, torch_options
    )
    report = Report("", type(model).__name__, exporter, call.opset, tolerance=tolerance, versions=versions())
    patching = {"only": only, "exclude": exclude, "image_size": image_size, "branches": branches, **patch_options}
    job = Job(call, report, patching, check, runtime, flatten=flatten, max_seconds=limit, progress=progress)
    with OutFile(f) as out:
        report.file = out.name
        state = Snapshot(model)
        try:
            if check:
                limits = Limits(probes=max_probes)
                dims = dynamic_dims(inputs, specs)
                job.found = subject(model, inputs, dims, limits=limits, flatten=job.flatten, data=data, later=True)
                if not job.found.example.outputs and not branches:
                    raise InputError(_NOTHING)
            _export_patched(job, out)
        finally:
            state.restore()
        if check:
            prove(job, out)
        if job.optionals:
            write_optionals(out.path)
        out.keep()
        report.notes += out.notes
    return report


def _refuse_what_cannot_be(model: Any, exporter: str, script: bool, check: bool, options: Mapping[str, Any]) -> None:
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    if isinstance(model, torch.jit.ScriptModule) and exporter == "dynamo":
        raise ScriptedModelError(
            "the dynamo exporter cannot take a scripted model: pass the nn.Module itself, or dynamo=False"
        )
    if script and exporter == "dynamo":
        raise InputError("script=True needs dynamo=False: torch.export does not read scripted code")
    if model.training and check and "training" not in options:
        raise InputError(
            f"{type(model).__name__} is in training mode, where outputs are random or depend on the batch: "
            "call model.eval() first, or check=False to export it as it is"
        )


def _export_patched(job: Job, out: OutFile) -> None:
    call, start, watch = job.call, time.perf_counter(), Stopwatch()
    if isinstance(call.model, torch.jit.ScriptModule):
        job.report.notes.append("the model was scripted already: nothing in it could be swapped")
        _run(job, call.model, out)
    else:
        example = (call.inputs.args, call.inputs.kwargs)
        options = {**job.patch_options, **({"rewritten": True} if job.patch_options["branches"] else {})}
        patched = patch_model(call.model, exporter=call.exporter, opset=call.opset, example=example, **options)
        with patched:
            if patched.plan.patches():
                check_before(job, patched)
            _run(job, call.model, out)
            job.report.plan = _plan_rows(patched)
            _take_merged_outputs(job, out)
            acted = {row["patch"] for row in job.report.plan}
            code = digest(patch for patch in patched.plan.patches() if patch.name in acted)
            stamp(out.path, call.exporter, job.report.plan, code, job.report.versions)
    job.report.seconds["export"] = time.perf_counter() - start
    job.exported = watch.seconds - job.checked


def _plan_rows(patched: Patched) -> list[dict[str, Any]]:
    made, acted = patched.plan, patched.scope.hits
    rows = [{"path": s.path, "class": type(s.module).__name__, "patch": s.patch.name} for s in made.swaps]
    functions = [p for p, _ in made.functions if acted[p.name]]  # those that only watched changed nothing
    return rows + [{"path": ", ".join(p.targets), "class": "function", "patch": p.name} for p in functions]


def _take_merged_outputs(job: Job, out: OutFile) -> None:
    """With branches, what the model may leave out is a value and a flag in the graph: named after the model's own
    structure, which goes into the file; the reference follows."""
    if not job.patch_options["branches"]:
        return
    from onnxpatch.control_flow import report_of

    forked = report_of(job.call.model)
    if forked is None:
        return
    job.report.notes += [str(note) for note in forked.notes]
    job.report.notes += [
        f"dropped from the graph: {path.error} ({path.module}, {path.line})" for path in forked.dropped
    ]
    try:
        name_outputs(out.path, forked, job.call.output_names)
    except ValueError as error:
        raise InputError(f"output_names={list(job.call.output_names or ())}: {error}") from None
    job.optionals = forked.layout is not None and wants_optionals(forked.layout)
    slots = forked.outputs
    if slots and job.found is not None and job.flatten is None:
        job.found.flatten(lambda output: flatten_reference(output, slots))


def _run(job: Job, model: Any, out: OutFile) -> None:
    state = Snapshot(model)
    try:
        job.report.program = run_exporter(job.call, model, out)
    except InputError:
        raise
    except Exception as error:
        raise ExportError(explained(error, job.call.model, job.call.exporter)) from error
    finally:
        state.restore()
