"""`export`: patch, export, compare the file with the unpatched model, restore; a wrong file is never left behind."""

from __future__ import annotations

import functools
import inspect
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from onnxpatch.control_flow import BranchReport, report_of
from onnxpatch.control_flow.optional_outputs.output_names import name_outputs
from onnxpatch.control_flow.optional_outputs.reference import flatten_reference
from onnxpatch.errors import ExportError, InputError, RunError, VerificationError
from onnxpatch.exporters.artifact import OutFile
from onnxpatch.exporters.exported import Exported
from onnxpatch.exporters.exported import export as run_exporter
from onnxpatch.exporters.request import ExportRequest, chosen_exporter, split_options
from onnxpatch.inputs.validate import check_numbers
from onnxpatch.onnxfile import output_structure
from onnxpatch.onnxfile.optional_type import wants_optionals, write_optionals
from onnxpatch.onnxfile.runtime import load_graphs
from onnxpatch.onnxfile.runtimes.interface import Provider
from onnxpatch.onnxfile.runtimes.known import chosen
from onnxpatch.onnxfile.stamp import stamp
from onnxpatch.onnxfile.time_limit import TimeLimit, limited
from onnxpatch.patched import Patched, patch_model
from onnxpatch.patching.digest import digest
from onnxpatch.patching.model_state import Snapshot
from onnxpatch.results.report import Checked, Report
from onnxpatch.verification.eager import Flatten
from onnxpatch.verification.input_matching import match_inputs
from onnxpatch.verification.probe import Budget
from onnxpatch.verification.reference import Reference
from onnxpatch.verification.runner import Progress, run
from onnxpatch.versions import versions

_BRANCHES = "\n  (data decides a Python branch of the model: branches=True exports all of them)"


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
    dynamo: bool | None = None,
    script: bool | None = None,
    exporter: str | None = None,
    external_data: bool = False,
    only: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    image_size: int | tuple[int, int] | None = None,
    branches: bool = False,
    check: bool = True,
    tolerance: float = 1e-3,
    max_probes: int = 16,
    max_seconds: float | None = None,
    data: Sequence[Any] = (),
    runtime: str | Sequence[str] | None = None,
    providers: Sequence[Provider] | None = None,
    flatten: Flatten | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    **options: Any,
) -> Report:
    """Export `model` to ONNX with its patches applied, and prove the file against the model as it is without them.

    The arguments of torch.onnx.export keep their names and meaning, with both exporters: `dynamic_shapes` (tuple, or
    dict by argument name; strings, torch.export.Dim, hints, ints) and `dynamic_axes` (by input name) are each turned
    into what the exporter wants; opset 18 by default; one file unless it exceeds 2 GB or external_data=True. `f` may be
    a path, a binary file object, or None (the file is checked and dropped). exporter: "dynamo" (the default), "trace"
    or "script", which compiles the patched model with torch.jit.script first; or torch's own dynamo=False and script.

    only, exclude, image_size, branches and other keywords: see `patched`. check=False exports without comparing.
    tolerance: largest difference allowed, as a share of an output's largest magnitude (float32; float16 1e-2, bfloat16
    6e-2; whole numbers and bools exact). max_probes: inputs compared; other data, every branch and
    what a dropped guard asks for are compared in any case. max_seconds: a limit for the whole; an export that takes
    longer is refused, a comparison that does ends early, and the report says so. Without it one run of the graph may
    take 120 seconds, since a file can hold a loop that never ends; math.inf lifts that limit too.
    runtime: "onnxruntime" (the default), "openvino", "reference", "tensorrt" or one that a distribution adds, or
    several: the file must be right in each. providers: onnxruntime's execution providers, "CUDAExecutionProvider" say;
    one that cannot be started is refused, never replaced by the CPU's.
    data: more inputs to compare at, each args or (args, kwargs). flatten: turns an output of the unpatched model into
    its tensors in the graph's order. progress: called with (stage, done, of).

    Compared are the unpatched model and the ONNX runtime, at the example, on other data, and at other sizes of every
    dynamic dimension that the unpatched model accepts. Python numbers among the arguments are constants of the export.

    Returns a Report (`.ok`, `.checks`, `.program`). The model comes back as it was, also after an error.
    Raises InputError (what was handed in cannot be used), ExportError (the exporter refused; chained), and
    VerificationError (first wrong output, its size, its error; no file is left, an older one stays as it was).
    """
    check_numbers(tolerance, max_probes)
    budget = Budget.starting_now(max_probes, max_seconds)
    torch_options, patch_options = split_options(options, inspect.signature(export).parameters)
    request = ExportRequest.parse(
        model, args, kwargs, chosen_exporter(exporter, dynamo, script), dynamic_shapes=dynamic_shapes,
        dynamic_axes=dynamic_axes, input_names=input_names, output_names=output_names, opset_version=opset_version,
        external_data=external_data, options=torch_options,
        patching={"only": only, "exclude": exclude, "image_size": image_size, "branches": branches, **patch_options},
    )  # fmt: skip
    if check:
        chosen(runtime)  # refuses a runtime that is not there, before the work of an export
        _refuse_training(request)
    with OutFile(f) as out:
        state, reference = Snapshot(model), None
        try:
            if check:
                reference = Reference(
                    model, request.inputs, request.dims, budget, flatten=flatten, data=data, state=state
                )
                _refuse_nothing(request, reference)
            exported, seconds = _exported(request, out, budget)
        finally:
            state.restore()
        report = Report(
            out.name, type(model).__name__, request.exporter, request.opset, tolerance=tolerance, versions=versions(),
            plan=list(exported.plan), notes=list(exported.notes), seconds={"export": seconds}, program=exported.program,
        )  # fmt: skip
        if reference is not None:
            if exported.flatten is not None and flatten is None:
                reference.flatten(exported.flatten)
            report = _compared(exported, reference, report, (runtime, providers), progress)
            report.raise_unless_right("" if branches else _BRANCHES)
        exported.publish()
        return replace(report, notes=[*report.notes, *out.notes])


def _refuse_training(request: ExportRequest) -> None:
    if request.model.training and "training" not in request.options:
        raise InputError(
            f"{type(request.model).__name__} is in training mode, where outputs are random or depend on the batch: "
            "call model.eval() first, or check=False to export it as it is"
        )


def _refuse_nothing(request: ExportRequest, reference: Reference) -> None:
    if not reference.probes[0].expected and not request.patching["branches"]:
        raise InputError(
            "the model returns no tensor on the example, so there is nothing to export: give an example on which it "
            "does, or branches=True, which exports both"
        )


# ------------------------------------------------------------------ exporting
def _exported(request: ExportRequest, out: OutFile, budget: Budget) -> tuple[Exported, float]:
    """(the file, complete, with the model patched while it was made; seconds that it took)."""
    start = time.perf_counter()
    if isinstance(request.model, torch.jit.ScriptModule):
        note = "the model was scripted already: nothing in it could be swapped"
        exported = replace(_run_exporter(request, out, budget), notes=[note])
    else:
        options = {**request.patching, **({"rewritten": True} if request.patching["branches"] else {})}
        example = (request.inputs.args, request.inputs.kwargs)
        with patch_model(
            request.model, exporter=request.exporter, opset=request.opset, example=example, **options
        ) as patched:
            exported = _finished(_run_exporter(request, out, budget), patched)
    return exported, time.perf_counter() - start


def _run_exporter(request: ExportRequest, out: OutFile, budget: Budget) -> Exported:
    try:
        with limited(budget.seconds_left):
            return run_exporter(request, out)
    except TimeLimit as late:
        who = f"{request.exporter} export of {type(request.model).__name__}"
        raise ExportError(f"{who} did not end within max_seconds={budget.max_seconds:g}: give it more") from late


def _finished(exported: Exported, patched: Patched) -> Exported:
    """The file with all that belongs into it: names, structure, optional outputs, how it was made."""
    request, path = exported.request, exported.out.path
    if patched.plan.settings.branches:
        exported = _with_structure(exported, report_of(request.model))
    plan = _plan_rows(patched)
    acted = {row["patch"] for row in plan}
    code = digest(patch for patch in patched.plan.patches() if patch.name in acted)
    stamp(path, request.exporter, plan, code, versions())
    return replace(exported, plan=plan)


def _plan_rows(patched: Patched) -> list[dict[str, Any]]:
    made, acted = patched.plan, patched.scope.hits
    rows = [{"path": s.path, "class": type(s.module).__name__, "patch": s.patch.name} for s in made.swaps]
    functions = [p for p, _ in made.functions if acted[p.name]]  # those that only watched changed nothing
    return rows + [{"path": ", ".join(p.targets), "class": "function", "patch": p.name} for p in functions]


def _with_structure(exported: Exported, forked: BranchReport | None) -> Exported:
    """With branches, what the model may leave out is a value and a flag in the graph, or ONNX's own optional: named
    after the model's own structure, which goes into the file; the reference follows."""
    if forked is None:
        return exported
    path, names = exported.out.path, exported.request.output_names
    try:
        name_outputs(path, forked, names)
    except ValueError as error:
        raise InputError(f"output_names={list(names or ())}: {error}") from None
    if forked.layout is not None and wants_optionals(forked.layout):
        write_optionals(path)
    notes = [str(note) for note in forked.notes]
    notes += [f"dropped from the graph: {one.error} ({one.module}, {one.line})" for one in forked.dropped]
    flatten = functools.partial(_in_file_order, forked) if forked.outputs else None
    return replace(exported, notes=notes, flatten=flatten)


def _in_file_order(forked: BranchReport, output: Any) -> list[torch.Tensor | None]:
    """Eager's output as the file gives it. A missing one of ONNX's optional type is no output at all."""
    marked = [leaf.get("form") == "onnx" for leaf in output_structure.leaves(forked.layout)] if forked.layout else []
    flat: list[torch.Tensor | None] = []
    for slot, joined in zip(forked.outputs, marked or itertools.repeat(False), strict=False):
        value, *flag = flatten_reference(output, [slot])
        if not (joined and flag):
            flat += [value, *flag]
        elif value is not None:
            flat.append(value)
    return flat


# ------------------------------------------------------------------ comparing
def _compared(
    exported: Exported,
    reference: Reference,
    report: Report,
    where: tuple[str | Sequence[str] | None, Sequence[Provider] | None],
    progress: Progress | None,
) -> Report:
    """Raises VerificationError where the file cannot be loaded."""
    request = exported.request
    try:
        graphs = load_graphs(exported.out.path, where[0], reference.budget.run_seconds, where[1])
    except RunError as error:
        refused = Checked("loading", "the file", "example", {}, error=str(error), status="refused")
        found = replace(report, checks=[refused])
        raise VerificationError(f"the exported graph cannot be loaded: {error}", found) from None
    feed = match_inputs(graphs[0], request.inputs, request.names_among([one.name for one in graphs[0].inputs]))
    conditions = getattr(exported.program, "exported_program", None)
    return run(graphs, feed, reference, report, conditions=conditions, progress=progress)
