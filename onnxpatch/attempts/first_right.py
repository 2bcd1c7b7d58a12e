"""Runs attempts until one is right at every size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from onnxpatch.attempts.attempt import Attempt
from onnxpatch.attempts.attempt_log import AttemptLog
from onnxpatch.attempts.course import next_attempt
from onnxpatch.attempts.failure import Failure
from onnxpatch.attempts.narrowed import Bounds, without_small_sizes
from onnxpatch.attempts.one_attempt import Proven
from onnxpatch.diagnosis.cures.operator_support import translated_by_dynamo
from onnxpatch.errors import ExportError, VerificationError
from onnxpatch.exporters.request import OpsetNotWritten
from onnxpatch.results.checks import attempt_lines
from onnxpatch.results.report import Report
from onnxpatch.results.report_text import WIDTH, shown, text
from onnxpatch.settings import Exporter

_WHY = "onnxpatch.doctor(model, ...) names the smallest part at fault and tries cures"
_TITLE = "next: "
_SCRIPTED = (
    "onnxpatch.export(module, ...) with the nn.Module that was scripted: no patch acts in compiled code, and no part "
    "of it can be exported alone"
)


def first_right(log: AttemptLog, exporters: Sequence[Exporter], bounds: Bounds | None) -> Proven | None:
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


def refusal(
    log: AttemptLog, exporters: Sequence[Exporter] = (), bounds: Bounds | None = None
) -> ExportError | VerificationError:
    """The first attempt's error. Its message lists the attempts, if there were several, and ends in what to type.

    exporters, bounds: as `first_right` had them.
    """
    error, results, advice = log.error, log.results(), what_to_type(log, exporters, bounds)
    assert error is not None
    error.attempts = tuple(results) if len(results) > 1 else ()
    if isinstance(error, VerificationError) and isinstance(error.report, Report):
        error.report = replace(error.report, attempts=results, call="", advice=advice)
        # The first line, and the hint behind it, were written before anything else was tried.
        said = str(error.args[0]).partition(f"\n{error.report.file or 'the exported graph'}: ")[0]
        error.args = (f"{said}\n{text(error.report, row=False)}", *error.args[1:])
        return error
    tried = []
    if len(results) > 1:
        tried = [
            f"{len(results)} attempts were made, and none is right:",
            *(f"  {one}" for one in attempt_lines(results, str(error.args[0]))),
        ]
    error.args = ("\n".join([str(error.args[0]), *map(shown, tried), f"{_TITLE}{advice}"]), *error.args[1:])
    return error


def what_to_type(log: AttemptLog, exporters: Sequence[Exporter], bounds: Bounds | None) -> str:
    """The calls, the most promising first, as many as a line has room for.

    exporters: those that were tried; none where one attempt was asked for.
    """
    if isinstance(log.shared.request.model, torch.jit.ScriptModule):
        return _SCRIPTED
    first, report = log.first, getattr(log.error, "report", None)
    if bounds is None and isinstance(report, Report) and report.right_within:
        narrow = first.call(log.shared.request, narrow=True)
        return _first_that_fit(f"{narrow} delivers the file for the sizes at which it is right")
    if not log.shared.several:
        if log.failed and log.failed[0].branch and not (first.branches or first.plain):
            return _first_that_fit(f"{replace(first, branches=True).call(log.shared.request)} exports both branches")
        return _first_that_fit(f"{first.call(log.shared.request)} without attempts='asked' tries other ways")
    # The trace exporter is no way out for torch.jit.script's errors, nor for itself.
    if first.exporter == "dynamo" and "trace" not in exporters:
        return _first_that_fit("onnxpatch.export(model, ..., exporter='auto') goes on with the trace exporter")
    operator = next((one.operator for one in log.failed if one.operator), "")
    if first.exporter == "trace" and "dynamo" not in exporters and translated_by_dynamo(operator):
        return _first_that_fit(f"onnxpatch.export(model, ..., exporter='dynamo'): that exporter translates {operator}")
    return _WHY


def _first_that_fit(call: str) -> str:
    """The call, and the doctor's where the line has room for it."""
    both = f"{call}; {_WHY}"
    return both if len(_TITLE + both) <= WIDTH else call
