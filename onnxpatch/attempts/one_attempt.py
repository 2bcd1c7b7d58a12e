"""One attempt: patch, export, complete the file, take the patches out, and hold the file against the reference."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from onnxpatch.attempts.attempt import Attempt
from onnxpatch.attempts.failure import Failure, failure_of
from onnxpatch.attempts.finished import finished
from onnxpatch.errors import ExportError, RunError, VerificationError
from onnxpatch.exporters.artifact import OutFile
from onnxpatch.exporters.exported import Exported
from onnxpatch.exporters.exported import export as run_exporter
from onnxpatch.exporters.output_layout import OutputLayout, layout_of
from onnxpatch.exporters.request import ExportRequest
<<<<<<< HEAD
from onnxpatch.onnxfile import output_structure
from onnxpatch.onnxfile.attention_nodes import name_attention
from onnxpatch.onnxfile.optional_type import wants_optionals, write_optionals
from onnxpatch.onnxfile.residual_sums import sum_residuals
=======
>>>>>>> main
from onnxpatch.onnxfile.runtime import load_graphs
from onnxpatch.onnxfile.runtimes.interface import Provider
from onnxpatch.onnxfile.time_limit import TimeLimit, limited
from onnxpatch.patched import patch_model
from onnxpatch.patching.model_state import Snapshot
from onnxpatch.patching.registry import Patch
from onnxpatch.results.report import Checked, Report
from onnxpatch.verification.eager import Eager, Flatten, flatten_output
from onnxpatch.verification.input_matching import match_inputs
from onnxpatch.verification.limits import kept
from onnxpatch.verification.probe import Budget
from onnxpatch.verification.reference import Reference
from onnxpatch.verification.runner import Progress, run
from onnxpatch.versions import versions

HINT = "\n  (forward branches on tensor values: branches=True exports both sides)"


@dataclass(frozen=True)
class Shared:
    """What all attempts of one export have in common. reference: None where nothing is compared.

    state: the model's, to be restored after every attempt. several: whether a failure is followed by other attempts.
    keep_wrong: whether the files of wrong attempts are kept, since they may be right within bounds.
    """

    request: ExportRequest
    out: OutFile
    budget: Budget
    state: Snapshot
    reference: Reference | None = None
    tolerance: float = 1e-3
    runtime: str | Sequence[str] | None = None
    providers: Sequence[Provider] | None = None
    flatten: Flatten | None = None
    progress: Progress | None = None
    several: bool = True
    keep_wrong: bool = False


@dataclass(frozen=True)
class Proven:
    """An attempt whose file is as good as was asked for. patches: those that acted. seconds: export and comparison."""

    attempt: Attempt
    exported: Exported
    report: Report
    patches: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Failed:
    """An attempt that failed: its error, and the same as data. wrong: its file, where that was kept."""

    error: ExportError | VerificationError
    failure: Failure
    wrong: Proven | None = None


@dataclass
class _Acting:
    """The patches of one attempt, noted while it runs, so that they are known where it fails.

    planned: all that could act. acted: those that changed something.
    """

    planned: list[Patch] = field(default_factory=list)
    acted: list[Patch] = field(default_factory=list)


def attempt_once(attempt: Attempt, shared: Shared) -> Proven | Failed:
    """One attempt. The model is as it was afterwards.

    Raises InputError for what no attempt can use.
    """
    start, acting, path = time.perf_counter(), _Acting(), shared.out.another()
    exported: Exported | None = None
    try:
        try:
            exported, seconds = _exported(attempt, shared, path, acting)
        finally:
            shared.state.restore()
        report = Report(
            shared.out.name, type(shared.request.model).__name__, attempt.exporter, attempt.opset,
            tolerance=shared.tolerance, versions=versions(), plan=list(exported.plan), notes=list(exported.notes),
            seconds={"export": seconds}, program=exported.program, call=attempt.call(shared.request),
        )  # fmt: skip
        if shared.reference is not None:
            report = _compared(attempt, exported, shared.reference, report, shared)
            report.raise_unless_right(HINT if not shared.several and not attempt.branches else "")
        names = tuple(dict.fromkeys(patch.name for patch in acting.acted))
        return Proven(attempt, exported, report, names, time.perf_counter() - start)
    except (ExportError, VerificationError) as error:
        decisions, took = shared.reference.decisions if shared.reference else None, time.perf_counter() - start
        model, wrong = shared.request.model, None
        failure = failure_of(attempt, error, acting.acted, acting.planned, model, decisions, took)
        found = error.report if isinstance(error, VerificationError) else None
        if shared.keep_wrong and exported is not None and isinstance(found, Report) and found.checks[0].ok:
            wrong = Proven(attempt, exported, found, failure.patches, took)
        else:
            shutil.rmtree(path.parent, ignore_errors=True)  # of gigabytes, perhaps; the next attempt needs the room
        return Failed(error, failure, wrong)


# ------------------------------------------------------------------ exporting
def _exported(attempt: Attempt, shared: Shared, path: Path, acting: _Acting) -> tuple[Exported, float]:
    """(the file, complete, with the model patched while it was made; seconds that it took)."""
    start, request = time.perf_counter(), replace(attempt.request(shared.request), layout=_layout(attempt, shared))
    if isinstance(request.model, torch.jit.ScriptModule):
        note = "the model was scripted already: nothing in it could be swapped"
        exported = replace(_run_exporter(request, path, shared), notes=[note])
        return exported, time.perf_counter() - start
    options = {**request.patching, **({"rewritten": True} if attempt.branches else {})}
    args, kwargs = request.inputs.rebuild(request.inputs.values())
    with patch_model(
        request.model, exporter=request.exporter, opset=request.opset, example=(args, kwargs), **options
    ) as patched:
        acting.planned += patched.plan.patches()
        try:
            exported = _run_exporter(request, path, shared)
        finally:
            swapped = {swap.patch.name for swap in patched.plan.swaps}
            acting.acted += [p for p in acting.planned if p.name in swapped or patched.scope.hits[p.name]]
        return finished(exported, patched, attempt.call(shared.request)), time.perf_counter() - start


def _layout(attempt: Attempt, shared: Shared) -> OutputLayout | None:
    """The structure of the model's output. With branches it is known only when all of them have been run."""
    if attempt.branches:
        return None
    flatten = shared.flatten or flatten_output
    if shared.reference is not None:
        layout = layout_of([probe.raw for probe in shared.reference.probes], flatten, shared.reference.names)
    else:
        eager = Eager(shared.request.model, shared.request.inputs, flatten, shared.state)
        answer = eager.ask(shared.request.inputs.values())
        layout = layout_of([answer.raw], flatten, eager.names) if answer.accepted else None
    if layout is not None and layout.numbers and shared.flatten is not None:
        return None  # the caller says what the outputs are
    return layout


def _run_exporter(request: ExportRequest, path: Path, shared: Shared) -> Exported:
    budget = shared.budget
    try:
        with limited(budget.seconds_left):
            return run_exporter(request, path)
    except TimeLimit as late:
        who = f"{request.exporter} export of {type(request.model).__name__}"
        raise ExportError(f"{who} did not end within max_seconds={budget.max_seconds:g}: give it more") from late


<<<<<<< HEAD
def _finished(exported: Exported, patched: Patched, call: str) -> Exported:
    """The file with all that belongs into it: names, structure, optional outputs, how it was made."""
    request = exported.request
    if patched.plan.settings.branches:
        exported = _with_structure(exported, report_of(request.model))
    operators = patched.plan.settings.operators
    if named := name_attention(exported.path, operators):
        told = f"one node for each attention that the model writes out: {named}"
        exported = replace(exported, notes=[*exported.notes, told])
    if operators == "onnxruntime":
        sum_residuals(exported.path)
    plan = _plan_rows(patched)
    acted = {row["patch"] for row in plan}
    code = digest(patch for patch in patched.plan.patches() if patch.name in acted)
    stamp(exported.path, request.exporter, plan, code, versions(), call)
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
    path, names = exported.path, exported.request.output_names
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


=======
>>>>>>> main
# ------------------------------------------------------------------ comparing
def _compared(attempt: Attempt, exported: Exported, reference: Reference, report: Report, shared: Shared) -> Report:
    """Raises VerificationError where the file cannot be loaded."""
    if shared.flatten is None:  # the attempt before may have had its outputs in another form
        reference.flatten(exported.flatten or flatten_output)
    request = exported.request
    try:
        graphs = load_graphs(exported.path, shared.runtime, reference.budget.run_seconds, shared.providers)
    except RunError as error:
        refused = Checked("loading", "the file", "example", {}, error=str(error), status="refused")
        found = replace(report, checks=[refused])
        raise VerificationError(f"the exported graph cannot be loaded: {error}", found) from None
    feed = match_inputs(graphs[0], request.inputs, request.names_among([one.name for one in graphs[0].inputs]))
    conditions = getattr(exported.program, "exported_program", None)
    limits = kept(reference.dims, attempt.fixed)
    return run(graphs, feed, reference, report, conditions=conditions, progress=shared.progress, limits=limits)
