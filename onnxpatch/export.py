"""`export`: patch, export, compare the file with the unpatched model, restore; a wrong file is never left behind."""

from __future__ import annotations

import inspect
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from onnxpatch.attempts.attempt import Attempt
from onnxpatch.attempts.attempt_log import AttemptLog, Prefer, best_of
from onnxpatch.attempts.bounded_files import Bounds, narrowed
from onnxpatch.attempts.course import better_than_plain, first_right, refusal
from onnxpatch.attempts.one_attempt import ExportContext, Proven
from onnxpatch.errors import InputError
from onnxpatch.exporters.artifact import OutFile
from onnxpatch.exporters.request import ExportRequest, requested_exporters, split_options
from onnxpatch.inputs.given_model import as_module
from onnxpatch.inputs.modules import other_in_eval, weights_brought
from onnxpatch.inputs.validate import check_callbacks, check_numbers, check_runnable
from onnxpatch.messages.text import shown
from onnxpatch.onnxfile.mapped_weights import bytes_beside
from onnxpatch.onnxfile.metadata import UNTRIED, WRONG_AT_ZERO, append
from onnxpatch.onnxfile.runtime import chosen
from onnxpatch.onnxfile.runtimes.interface import Provider
from onnxpatch.patching.forward_state import Snapshot, process_state_kept
from onnxpatch.results.report import Report
from onnxpatch.settings import Exporter, Operators
from onnxpatch.verification.eager import Flatten, lost_state
from onnxpatch.verification.probe import Budget
from onnxpatch.verification.reference import Reference

Attempts = Literal["auto", "asked"]
_MOST_UNTRIED = 20  # in a file's metadata
_log = logging.getLogger("onnxpatch")


def export(
    model: Any,
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
    weights: str | os.PathLike[str] | None = None,
    only: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    image_size: int | tuple[int, int] | None = None,
    branches: bool = False,
    operators: Operators = "portable",
    attempts: Attempts = "auto",
    prefer: Prefer | None = None,
    bounds: Bounds | None = None,
    check: bool = True,
    tolerance: float = 1e-3,
    max_probes: int = 16,
    max_seconds: float | None = None,
    max_memory: float | str | None = None,
    data: Sequence[Any] = (),
    sizes: Mapping[str, Sequence[int]] | None = None,
    runtime: str | Sequence[str] | None = None,
    providers: Sequence[Provider] | None = None,
    flatten: Flatten | None = None,
    progress: Callable[[str, int, int], None] | bool | None = None,
    **options: Any,
) -> Report:
    """Export `model` to ONNX with its patches applied, and prove the file against the model as it is without them.

    model: an nn.Module; also a function, a bound method (`model.encode`), a functools.partial of one (the modules that
    they reach are patched), a torch.export.ExportedProgram, and what DataParallel wraps. A model in training mode is
    refused if a module of it would compute something else in eval.

    The arguments of torch.onnx.export keep their names and meaning, with both exporters: `dynamic_shapes` (tuple, or
    dict by argument name; strings, torch.export.Dim, hints, ints; `"past+n"`, `"2*h"`, `"n+1"` for a size that follows
    from others) and `dynamic_axes` (by input name) are each turned into what the exporter wants. The opset is 18 by
    default. One file is written unless it exceeds 2 GB or external_data=True. `f` may be a path, a binary file object,
    or None (the file is checked and dropped). exporter: "dynamo" (the default), "trace" (the TorchScript exporter) or
    "script", which compiles the patched model with torch.jit.script first; or torch's own dynamo=False and script.
    "auto": dynamo, and trace where no attempt with dynamo is right.

    attempts: "auto" goes on where the export fails as it was asked for: without a patch whose stand-in failed, without
    any patch, with branches=True where a Python branch or loop failed. The first attempt that is proven right is
    delivered; `report.attempts` has them all, `report.call` the call that makes the file at once. A model that is right
    the first time is exported once. "asked": one attempt, as with check=False, where nothing is proven.
    prefer: "latency" or "size" goes on after the first right file, with and without patches and with every exporter
    that may be tried, and delivers the best of those proven: measured in the runtime at the example and at the largest
    input that was compared, interleaved; or by the bytes of the file.
    A later attempt's exporter may take five times the first attempt's processor time, 30 s at least, and all later ones
    300 s together, unless max_seconds= is given. A line on stderr says what runs.
    bounds: where no attempt is right at every size, a file that is wrong only at sizes far below the example's (an
    eighth, or where eager itself answers with NaN or with empty tensors) is delivered, for the sizes from there on.
    "narrow" delivers one that is right at some sizes: where one size follows from others (t = p+n), or in the widest
    range of each dimension, or at its multiples. "never"
    delivers neither. Bounds are proven at the edges, first in the report (`report.bounds`), and stand in the file's
    metadata and dimension names; `Session` refuses inputs outside.

    weights: a .safetensors file, or the .json index of several, with the values of a model whose parameters are on the
    meta device. They are read as they are needed, and never all in memory; the model is on the meta device again after.
    only, exclude, image_size, branches, operators, other keywords: see `patched`. check=False: export, compare nothing.
    tolerance: largest difference allowed, as a share of an output's largest magnitude (float32; float16 1e-2, bfloat16
    6e-2; whole numbers and bools exact). max_probes: inputs compared; other data, every branch and
    what a dropped guard asks for are compared in any case. max_seconds: a limit for the whole; an export that takes
    longer is refused, a comparison that does ends early, and the report says so. Without it one run of the graph may
    take 120 seconds, since a file can hold a loop that never ends; math.inf lifts that limit too.
    max_memory: bytes that one run may take, 2e9 or "2GB", beside what the process has; without it 16 times the
    example's, from 512 MB to 2 GB. An input that needs more is not tried, and a note names it; see `report.memory`.
    data: more inputs to compare at, each args or (args, kwargs). sizes: sizes to compare at in any case, such as
    {"H": [32, 518]}. flatten: turns an output of the unpatched model into its tensors in the graph's order.
    runtime: "onnxruntime" (the default), "openvino", "reference", "tensorrt" or one that a distribution adds; or
    several: the file must be right in each. providers: onnxruntime's execution providers, "CUDAExecutionProvider" say;
    one that cannot be started is refused, never replaced by the CPU's. progress: called with (stage, done, of); True
    writes them on stderr. Without it a line on stderr says that a later attempt starts; False: nothing.

    Compared are the unpatched model and the ONNX runtime, at the example, on other data, and at other sizes of every
    dynamic dimension that the unpatched model accepts. Python numbers among the arguments are constants of the export.

    Returns a Report (`.ok`, `.checks`, `.program`). The model comes back as it was, also after an error.
    Raises InputError (what was handed in cannot be used), ExportError (the exporter refused; chained), and
    VerificationError (first wrong output, its size, its error; no file is left, an older one stays as it was). Of
    several attempts the first one's error is raised, with the list of what was tried (`error.attempts`).
    """
    check_numbers(tolerance, max_probes)
    check_callbacks(flatten, progress)
    _check_choices(attempts, prefer, bounds, check)
    budget = Budget.starting_now(max_probes, max_seconds, max_memory)
    torch_options, patch_options = split_options(options, inspect.signature(export).parameters)
    model = as_module(model)
    exporters = requested_exporters(model, exporter, dynamo, script)
    request = ExportRequest.parse(
        model, args, kwargs, exporters[0], dynamic_shapes=dynamic_shapes,
        dynamic_axes=dynamic_axes, input_names=input_names, output_names=output_names, opset_version=opset_version,
        external_data=external_data, options=torch_options,
        patching={
            "only": only, "exclude": exclude, "image_size": image_size, "branches": branches, "operators": operators,
            **patch_options,
        },
    )  # fmt: skip
    if check:
        chosen(runtime)  # refuses a runtime that is not there, before the work of an export
        if weights is None:
            check_runnable(model)
        _refuse_training(request)
    _log.info("exporting %s (%s, opset %d)", type(model).__name__, request.exporter, request.opset)
    # Probes are drawn at random: the caller's generators go on as if nothing had been drawn.
    with OutFile(f) as out, process_state_kept(), weights_brought(model, weights):
        # Before the reference runs, since a forward in eager may change the model as well.
        state, reference = Snapshot(model, *request.inputs.objects()), None
        try:
            if check:
                reference = Reference(
                    model,
                    request.inputs,
                    request.dims,
                    budget,
                    flatten=flatten,
                    data=data,
                    sizes=sizes,
                    state=state,
                )
                _refuse_nothing(request, reference)
            several = check and attempts == "auto"
            context = ExportContext(
                request, out, budget, state, reference, tolerance, runtime, providers, flatten,
                shown(progress) if progress else None, several, announce=progress is not False,
            )  # fmt: skip
            log = AttemptLog(context, Attempt.asked(request))
            delivered, report = _delivered(log, exporters if several else (), prefer, bounds)
        finally:
            state.restore()
        if report.untried:
            said = [one.sentence() for one in report.untried[:_MOST_UNTRIED]]
            append(delivered.exported.path, {UNTRIED: json.dumps(said)})
        if report.wrong_at_zero:
            append(delivered.exported.path, {WRONG_AT_ZERO: json.dumps(report.wrong_at_zero)})
        size = bytes_beside(delivered.exported.path)
        out.keep(delivered.exported.path)
        return replace(report, bytes=size, notes=[*report.notes, *lost_state(state), *out.notes])


def _check_choices(attempts: str, prefer: str | None, bounds: str | None, check: bool) -> None:
    if attempts not in ("auto", "asked"):
        raise InputError(f"attempts={attempts!r}: use 'auto' or 'asked'")
    if prefer not in (None, "latency", "size"):
        raise InputError(f"prefer={prefer!r}: use 'latency' or 'size', or leave it out")
    if bounds not in (None, "narrow", "never"):
        raise InputError(f"bounds={bounds!r}: use 'narrow' or 'never', or leave it out")
    if bounds == "narrow" and not check:
        raise InputError("bounds='narrow' finds sizes at which the file is right by comparing: leave out check=False")
    if prefer is not None and (attempts == "asked" or not check):
        raise InputError(f"prefer={prefer!r} chooses among several attempts that are proven right: leave out "
                         f"{'check=False' if not check else 'attempts=' + repr(attempts)}")  # fmt: skip


def _delivered(
    log: AttemptLog, exporters: Sequence[Exporter], prefer: Prefer | None, bounds: Bounds | None
) -> tuple[Proven, Report]:
    """The attempt whose file is kept, and its report. exporters: those that may be tried; none for one attempt."""
    found, note = first_right(log, exporters, bounds), ""
    if found is None:
        found = narrowed(log) if bounds == "narrow" else log.deliver_bounded()
    if found is None:
        raise refusal(log, exporters, bounds)
    # Plain is right where the patched attempts were not: then a patch is at fault, and the others may stay.
    if found.attempt.plain and not found.report.bounds:
        found, note = better_than_plain(log, found)
    if prefer is not None and not found.report.bounds:
        found = best_of(log, found, exporters, prefer)
    report = replace(found.report, attempts=log.results(found))
    return found, replace(report, notes=[note, *report.notes]) if note else report


def _refuse_training(request: ExportRequest) -> None:
    others = [] if "training" in request.options else other_in_eval(request.model)
    if others:
        path, module = others[0]
        where = f"{path!r}, a {type(module).__name__}" if path else "its forward"
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise InputError(
            f"{type(request.model).__name__} is in training mode, where outputs are random or depend on the batch "
            f"({where}{more}): call model.eval() first (before torch.export.export, where you use that), or pass "
            "check=False to export it in training mode, not compared"
        )


def _refuse_nothing(request: ExportRequest, reference: Reference) -> None:
    if not reference.probes[0].expected and not request.patching["branches"]:
        returned = reference.probes[0].raw
        if returned is None:
            raise InputError(
                "the model returns None on the example, so there is nothing to export: give an example on which it "
                "returns a tensor, or branches=True, which exports the tensor and a flag that says whether it is there"
            )
        raise InputError(
            f"the model returns a value of type {type(returned).__name__}, and export finds no tensor in it: return "
            "tensors, alone or in a tuple, list, dict or dataclass, or pass flatten=lambda output: (output.x, ...)"
        )
