"""Makes one attempt: patches, exports, completes the file, restores the model, compares the file with eager."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from onnxpatch.attempts.attempt import Attempt
from onnxpatch.attempts.failure import Failure, failure_of
from onnxpatch.attempts.finalize_file import finalize_file
from onnxpatch.control_flow import report_of
from onnxpatch.errors import ExportError, RunError, VerificationError
from onnxpatch.exporters.artifact import OutFile
from onnxpatch.exporters.exported import Exported, refusal_text, run_exporter
from onnxpatch.exporters.opened_call import OutputLayout, layout_of
from onnxpatch.exporters.request import ExportRequest
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.limits import TimeLimit, limited
from onnxpatch.messages.text import Progress
from onnxpatch.messages.user_code import told_when_late
from onnxpatch.onnxfile.metadata import versions
from onnxpatch.onnxfile.runtime import Graph, load_graphs
from onnxpatch.onnxfile.runtime_forms import (
    cast_what_is_refused,
    compute_in_float32,
    forget_merged_sizes,
    reshape_no_elements,
)
from onnxpatch.onnxfile.runtimes.interface import BFLOAT16, Provider
from onnxpatch.patched import patched
from onnxpatch.patching.forward_state import Snapshot
from onnxpatch.patching.registry import Patch
from onnxpatch.results.checks import Checked
from onnxpatch.results.report import Report
from onnxpatch.verification.branch_recorder import Decisions
from onnxpatch.verification.eager import Eager, Flatten, flatten_output
from onnxpatch.verification.input_matching import feed_of
from onnxpatch.verification.probe import Budget
from onnxpatch.verification.reference import Reference
from onnxpatch.verification.runner import compare_graphs, fixed_limits

_MOST_LINES = 3  # that the hint about branches names
_LARGER = (3, 2)  # sizes to trace at instead of 1
# What helps against an exporter that takes minutes.
_LATE = "max_seconds= ends it, and a smaller model of the same classes exports faster"
_FASTER = "torch.export simplifies expressions of sizes; exporter='trace', or fewer dynamic sizes, may take seconds; "
_MOST_IN_SYMPY = 60.0  # seconds of processor time; models of which that takes longer took ten minutes or did not end


@dataclass(frozen=True)
class ExportContext:
    """What all attempts of one export share. reference: None if nothing is compared.

    state: the model's, restored after every attempt. several: whether other attempts may follow a failure.
    keep_wrong: whether the file of a wrong attempt is kept, since it may be right within bounds.
    processor_seconds: what the exporter may take, of the process's processor time; None for no limit.
    announce: whether lines on stderr say that a later attempt starts, and that an exporter takes long.
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
    processor_seconds: float | None = None
    announce: bool = True

    def loaded(self, file: Path) -> list[Graph]:
        """A file in each runtime that it is compared in. Raises RunError where one refuses it."""
        return load_graphs(file, self.runtime, self.budget.run_seconds, self.providers)


@dataclass(frozen=True)
class Proven:
    """An attempt whose file is right, or was not to be compared. patches: those that acted. seconds: of the attempt."""

    attempt: Attempt
    exported: Exported
    report: Report
    patches: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class _Failed:
    """An attempt that failed. failure: the error as data. wrong: its file, if that was kept."""

    error: ExportError | VerificationError
    failure: Failure
    wrong: Proven | None = None


@dataclass
class _Acting:
    """The patches of one attempt, recorded while it runs, so that they are known if it fails.

    planned: all that can act. acted: those that did.
    """

    planned: list[Patch] = field(default_factory=list)
    acted: list[Patch] = field(default_factory=list)


def _proven(
    attempt: Attempt, exported: Exported, reference: Reference, started: Report, shared: ExportContext
) -> Report:
    """The report of a file that is right. Raises VerificationError, or the exporter's own refusal, for another one."""
    report = _compared(attempt, exported, reference, started, shared)
    while refused := [one.error for one in report.checks if one.status == "refused"]:
        # A runtime stops where sizes that the file writes beside its values are false: nothing computes them.
        path = exported.path
        if not (
            forget_merged_sizes(path)
            or reshape_no_elements(path, refused[0])
            or _cast_around(exported, refused[0], started, shared)
        ):
            break
        report = _compared(attempt, exported, reference, started, shared)
    if report.wrong:
        if exported.refusal is not None:
            raise ExportError(
                refusal_text(exported.refusal, shared.request.model, attempt.exporter)
            ) from exported.refusal
        report.raise_unless_right("" if shared.several or attempt.branches else _hint(reference.decisions))
    return report


def attempt_once(attempt: Attempt, shared: ExportContext) -> Proven | _Failed:
    """Make one attempt. The model is restored. Raises InputError for arguments that no attempt can use."""
    start, acting, path = time.perf_counter(), _Acting(), shared.out.another()
    exported: Exported | None = None
    try:
        try:
            exported, seconds = _exported(attempt, shared, path, acting)
        finally:
            # Before the comparison, which runs the model in eager again, and before the next attempt.
            shared.state.restore()
        report = Report(
            shared.out.name, type(shared.request.model).__name__, attempt.exporter, attempt.opset,
            tolerance=shared.tolerance, versions=versions(), plan=list(exported.plan), notes=list(exported.notes),
            seconds={"export": seconds}, program=exported.program, call=attempt.call(shared.request),
        )  # fmt: skip
        if shared.reference is not None:
            report = _proven(attempt, exported, shared.reference, report, shared)
        names = tuple(dict.fromkeys(patch.name for patch in acting.acted))
        return Proven(attempt, exported, report, names, time.perf_counter() - start)
    except (ExportError, VerificationError) as error:
        model, took, wrong = shared.request.model, time.perf_counter() - start, None
        failure = failure_of(attempt, error, acting.acted, acting.planned, model, shared.reference, took)
        found = error.report if isinstance(error, VerificationError) else None
        # checks[0] is the example: a file that is wrong there is right within no bounds.
        if shared.keep_wrong and exported is not None and isinstance(found, Report) and found.checks[0].ok:
            wrong = Proven(attempt, exported, found, failure.patches, took)
        else:
            shutil.rmtree(path.parent, ignore_errors=True)  # it may have gigabytes, which the next attempt needs
        return _Failed(error, failure, wrong)


def _hint(decisions: Decisions | None) -> str:
    """What to do about a wrong output where the forward took another branch. decisions: eager's at the example."""
    lines = ", ".join(list(decisions.lines)[:_MOST_LINES]) if decisions is not None else ""
    return f"\n  forward branches on tensor values{f' ({lines})' if lines else ''}: branches=True exports both sides"


# ------------------------------------------------------------------ exporting
def _exported(attempt: Attempt, shared: ExportContext, path: Path, acting: _Acting) -> tuple[Exported, float]:
    """(the finished file, exported from the patched model; seconds)."""
    start, request = time.perf_counter(), replace(attempt.request(shared.request), layout=_layout(attempt, shared))
    if isinstance(request.model, torch.jit.ScriptModule):
        note = "the model was scripted already: nothing in it could be swapped"
        exported = replace(_run_exporter(request, path, shared), notes=[note])
        return exported, time.perf_counter() - start
    branching = {"rewritten": True, "compared": shared.reference is not None} if attempt.branches else {}
    options = {**request.patching, **branching}
    traced = _with_another_example(request, shared.reference, dict(attempt.traced))
    args, kwargs = request.inputs.rebuild(request.inputs.values())
    with patched(
        request.model, exporter=request.exporter, opset=request.opset, example=(args, kwargs), **options
    ) as made:
        acting.planned += made.plan.patches()
        try:
            exported = replace(_run_exporter(traced, path, shared), request=request)
        except ExportError as error:
            forked = report_of(request.model) if attempt.branches else None
            if forked is None or not forked.settled or isinstance(error.__cause__, TimeLimit):
                raise
            # What failed follows from the answers that the example gave in place of paths.
            first = forked.settled[0]
            raise ExportError(refusal_text(first, request.model, attempt.exporter)) from first
        finally:
            swapped = {swap.patch.name for swap in made.plan.swaps}
            hits = made.scope.hits
            acting.acted += [p for p in acting.planned if p.name in swapped or hits[p.name]]
        exported = _loadable(finalize_file(exported, made, attempt.call(shared.request)), shared)
        return exported, time.perf_counter() - start


def _on_the_cpu(shared: ExportContext) -> bool:
    return shared.providers is None and shared.runtime in (None, "onnxruntime")


def _cast_around(exported: Exported, said: str, report: Report, shared: ExportContext) -> bool:
    """Whether what the runtime refuses for its dtype has casts around it now; the report gets a note of it."""
    note = cast_what_is_refused(exported.path, said) if _on_the_cpu(shared) else ""
    report.notes.extend([note] if note else [])
    return bool(note)


def _loadable(exported: Exported, shared: ExportContext) -> Exported:
    """The file with casts around what onnxruntime's CPU has no bfloat16 kernel for, where that is to run it."""
    if not _on_the_cpu(shared) or not exported.may_hold(BFLOAT16):
        return exported
    model, values = exported.request.model, exported.request.inputs.values()
    held = itertools.chain(model.parameters(), model.buffers(), (v for v in values if isinstance(v, torch.Tensor)))
    count = compute_in_float32(exported.path, held)
    note = f"computed in float32, since onnxruntime's CPU has no kernel for it in bfloat16: {count} nodes"
    return replace(exported, notes=[*exported.notes, note]) if count else exported


def _with_another_example(request: ExportRequest, reference: Reference | None, sizes: dict[str, int]) -> ExportRequest:
    """The request with an example of these sizes, if there are any; else with one that has no dynamic dimension of size
    1, if eager takes one; else the request itself.

    Most models are exported with a batch of 1. torch.export decides `size == 1` by the example where a broadcast or a
    view asks, and the graph is that of one. At two or more it is the general one, which is right for one, too: the
    comparison with eager shows it. The model must be unpatched: eager may be asked.
    """
    single = [dim.name for dim in reference.dims if dim.size == 1] if reference is not None else []
    if reference is None or not (sizes or (single and request.exporter == "dynamo")):
        return request
    for wanted in [sizes] if sizes else [dict.fromkeys(single, size) for size in _LARGER]:
        probe = reference.oracle.at(wanted, must=True)
        if probe is not None:
            args, kwargs = request.inputs.rebuild(probe.values)
            return replace(request, inputs=Inputs(request.model, args, kwargs))
    return request


def _layout(attempt: Attempt, shared: ExportContext) -> OutputLayout | None:
    """The structure of the model's output. With branches it is known only when all of them have been run, unless the
    model's hooks say what it is."""
    # The caller's `flatten` and the paths of a branching forward decide the outputs themselves.
    forked = attempt.branches and not shared.request.model._forward_hooks
    if forked or (shared.reference is None and shared.flatten is not None):
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


def _run_exporter(request: ExportRequest, path: Path, shared: ExportContext) -> Exported:
    budget, who = shared.budget, f"{request.exporter} export of {type(request.model).__name__}"
    remedy = _FASTER * (request.exporter == "dynamo") + _LATE
    spoken = told_when_late(who, remedy) if shared.announce else contextlib.nullcontext()
    within = limited(shared.processor_seconds, processor=True)
    # The first of several: the others have a limit of all that they take.
    if shared.several and shared.processor_seconds is None and budget.max_seconds is None:
        within = limited(_MOST_IN_SYMPY, processor=True, inside="sympy")
    try:
        with spoken, limited(budget.seconds_left), within:
            return run_exporter(request, path)
    except TimeLimit as late:
        if late.processor and shared.processor_seconds is None:
            said = f"{who} spent {late.seconds:.0f} s of processor time on expressions of sizes, and did not end"
            raise ExportError(f"{said}: exporter='trace', or fewer dynamic sizes; max_seconds= gives it more") from late
        if late.processor:
            limit = f"{late.seconds:.0f} s of processor time, the limit of a later attempt"
            raise ExportError(
                f"{who} did not end within {limit}: ask for this attempt alone, or give max_seconds="
            ) from late
        raise ExportError(f"{who} did not end within max_seconds={budget.max_seconds:g}: give it more") from late


# ------------------------------------------------------------------ comparing
def _compared(
    attempt: Attempt, exported: Exported, reference: Reference, report: Report, shared: ExportContext
) -> Report:
    """The report with the comparison. Raises VerificationError if the file cannot be loaded."""
    if shared.flatten is None:  # the attempt before may have flattened its outputs otherwise
        reference.flatten(exported.flatten or flatten_output)
    try:
        graphs = shared.loaded(exported.path)
    except RunError as error:
        if _cast_around(exported, str(error), report, shared):
            return _compared(attempt, exported, reference, report, shared)
        refused = Checked("loading", "the file", "example", {}, error=str(error), status="refused")
        found = replace(report, checks=[refused])
        raise VerificationError(f"the exported graph cannot be loaded: {error}", found) from None
    feed = feed_of(graphs[0], exported.request)
    conditions = getattr(exported.program, "exported_program", None)
    limits = fixed_limits(reference.dims, attempt.fixed, attempt.related)
    return compare_graphs(
        graphs, feed, reference, report, conditions=conditions, progress=shared.progress, limits=limits
    )
