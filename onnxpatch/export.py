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
from onnxpatch.attempts.bounded_files import Bounds, bounded_file, without_small_sizes
from onnxpatch.attempts.failure import Failure
from onnxpatch.attempts.next_attempt import better_than_plain, next_attempt, refusal
from onnxpatch.attempts.one_attempt import ExportContext, Proven
from onnxpatch.errors import InputError
from onnxpatch.exporters.artifact import OutFile
from onnxpatch.exporters.request import ExportRequest, OpsetNotWritten, requested_exporters, split_options
from onnxpatch.inputs.modules import as_module, weights_brought
from onnxpatch.inputs.validate import check_callbacks, check_numbers, check_runnable, refuse_training
from onnxpatch.messages.text import progress_writer
from onnxpatch.onnxfile.mapped_weights import bytes_beside
from onnxpatch.onnxfile.metadata import UNTRIED, WRONG_AT_ZERO, append
from onnxpatch.onnxfile.runtime import chosen_runtimes
from onnxpatch.onnxfile.runtimes.interface import Provider
from onnxpatch.patching.forward_state import Snapshot, process_state_kept
from onnxpatch.results.report import Report
from onnxpatch.settings import Exporter, Operators
from onnxpatch.verification.eager import Flatten
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
    """Export `model` to ONNX with patches applied, and compare the file with the unpatched model.

    The file is run in onnxruntime, and the model in eager: at the example, on other data, and at other sizes of every
    dynamic dimension that the model accepts. A file that is wrong is not delivered; an older one at `f` then stays.

        report = onnxpatch.export(model, (image,), "m.onnx", dynamic_shapes=({0: "B", 2: "H", 3: "W"},))

    What is exported:

    model: an nn.Module; also a function, a bound method (`model.encode`), a functools.partial of one (the modules that
        they reach are patched), a torch.export.ExportedProgram, and what DataParallel wraps. A model in training mode
        is refused if one of its modules computes something else in eval.
    args, kwargs: the example call. Python numbers among them are constants of the file.
    f: where the file goes: a path, a binary file object, or None (the file is compared and dropped).
    dynamic_shapes: the sizes that may change, with either exporter: a tuple, or a dict by argument name, of names,
        torch.export.Dim, hints or ints. "past+n", "2*h", "n+1" are sizes that follow from others.
    dynamic_axes: the same by the names of the inputs, as for dynamo=False.
    input_names, output_names: names in the file. opset_version: 18 unless given.
    external_data: write the weights beside the file, as is done for more than 2 GB in any case.
    weights: a .safetensors file, or the .json index of several, with the values of a model whose parameters are on the
        meta device. They are read as they are needed, never all at once; the model is on the meta device afterwards.

    How it is exported:

    exporter: "dynamo" (the default), "trace" (the TorchScript exporter), "script" (the same, after torch.jit.script),
        or "auto": dynamo, and trace where no attempt with dynamo is right. torch's own dynamo=False and script=True are
        understood, too.
    attempts: "auto" makes other attempts where the first fails: without a patch whose stand-in failed, without any
        patch, with branches=True where a Python branch or loop failed, with as_in_eager=True where the model asks if it
        is exported. The first right file is delivered; `report.attempts` has all attempts, `report.call` the call that
        makes the file at once. A later attempt's exporter may take five times the first one's processor time, at least
        60 s, and all later ones together 300 s, unless max_seconds= is given. "asked": one attempt; check=False makes
        one, too.
    prefer: "latency" or "size": go on after the first right file, with and without patches and with every exporter that
        may be tried, and deliver the fastest (timed in the runtime at the example and at the largest input that was
        compared) or the smallest.
    bounds: what happens where no attempt is right at every size. None: a file that is wrong only at sizes far below the
        example's (at most an eighth, or where eager answers with NaN or with empty tensors) is delivered for the sizes
        from there on. "narrow": so is one that is right where one size follows from others (t = p+n), in a range of
        each dimension, or at its multiples. "never": neither. Bounds are compared at their edges. They are first in the
        report (`report.bounds`), and in the file's metadata; `Session` refuses inputs outside.
    only, exclude, image_size, branches, operators, as_in_eager, options of patches: see `patch_model`. Further keywords
        of torch.onnx.export are passed on.

    How it is compared:

    check: False compares nothing; the verdict is "unchecked".
    tolerance: the largest difference allowed, as a share of an output's largest magnitude, in float32 and float64. It
        is 1e-2 in float16, 6e-2 in bfloat16; whole numbers and bools have to be equal.
    data: more inputs to compare at, each args or (args, kwargs). sizes: more sizes, such as {"H": [32, 518]}.
    max_probes: the most inputs. Other data, other branches, and sizes at which a dropped guard breaks come on top.
    max_seconds: a limit for the whole. An export that takes longer is refused; a comparison that does ends early, and
        the report says so. Without it one run of the file may take 120 seconds, since a file can have a loop that never
        ends; math.inf lifts that limit too.
    max_memory: bytes that one run may take beside what the process has, 2e9 or "2GB"; without it 16 times the
        example's, from 512 MB to 2 GB. An input that needs more is not tried, and a note names it; see `report.memory`.
    runtime: "onnxruntime" (the default), "openvino", "reference", "tensorrt" or one that a distribution adds; or
        several: the file must be right in each. providers: onnxruntime's execution providers, such as
        "CUDAExecutionProvider"; one that cannot be started is refused.
    flatten: turns an output of the unpatched model into its tensors, in the order of the file's outputs.
    progress: called with (stage, done, of); True writes that on stderr. None: a line on stderr says that a later
        attempt starts; False: nothing does.

    Returns a Report; `report.ok` is True for a right file. The model is restored, also after an error.
    Raises InputError (an argument cannot be used), UnknownPatchError, UnknownExporterError, ExportError (the exporter
    refused; its error is the `__cause__`, with branches=True maybe a BranchError) and VerificationError (the file is
    wrong: the first wrong output, its size, its error). Of several attempts the first one's error is raised;
    `error.attempts` has all.
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
        chosen_runtimes(runtime)  # refuses a runtime that is not there, before the work of an export
        if weights is None:
            check_runnable(model)
        if "training" not in request.options:
            refuse_training(request.model)
    _log.info("exporting %s (%s, opset %d)", type(model).__name__, request.exporter, request.opset)
    # Probes are drawn at random: the caller's generators go on as if nothing had been drawn.
    with OutFile(f) as out, process_state_kept(), weights_brought(model, weights):
        # Before the reference runs, since a forward in eager may change the model as well.
        state, reference = Snapshot(model, *request.inputs.objects()), None
        try:
            if check:
                reference = Reference(
                    model, request.inputs, request.dims, budget, flatten=flatten, data=data, sizes=sizes, state=state
                )
                _refuse_nothing(request, reference)
            several = check and attempts == "auto"
            context = ExportContext(
                request, out, budget, state, reference, tolerance, runtime, providers, flatten,
                progress_writer(progress) if progress else None, several, announce=progress is not False,
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
        return replace(report, bytes=size, notes=[*report.notes, *state.notes(), *out.notes])


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
    found, note = _first_right(log, exporters, bounds), ""
    if found is None:
        found = bounded_file(log) if bounds == "narrow" else log.deliver_bounded()
    if found is None:
        raise refusal(log, exporters, bounds)
    # Plain is right where the patched attempts were not: then a patch is at fault, and the others may stay.
    if found.attempt.plain and not found.report.bounds:
        found, note = better_than_plain(log, found)
    if prefer is not None and not found.report.bounds:
        found = best_of(log, found, exporters, prefer)
    report = replace(found.report, attempts=log.results(found))
    return found, replace(report, notes=[note, *report.notes]) if note else report


def _first_right(log: AttemptLog, exporters: Sequence[Exporter], bounds: Bounds | None) -> Proven | None:
    """Make attempts until one is right. Returns it; None if no other attempt can help.

    bounds: None to keep the first file that is wrong at sizes far below the example's only, in `log.bounded`; "narrow"
    to keep all wrong files for `narrowed`; "never" to keep none.
    """
    attempt: Attempt | None = log.first
    while attempt is not None:
        try:
            outcome = log.attempt(attempt, keep_wrong=bounds != "never" and log.shared.reference is not None)
        except OpsetNotWritten as error:
            # No other attempt with this exporter can write the opset that was asked for.
            exporters = [one for one in exporters if one != attempt.exporter]
            if not exporters:
                raise
            log.made.append(Failure(attempt, "refused", str(error)))
        else:
            if isinstance(outcome, Proven):
                return outcome
        for wrong in list(log.wrong) if bounds is None else ():
            log.bounded = log.bounded or without_small_sizes(log, wrong)
            if log.bounded is None or log.bounded.exported is not wrong.exported:
                log.drop(wrong)
        attempt = None if log.over else next_attempt(log.first, exporters, log.failed, log.bounded is not None)
    return None


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
