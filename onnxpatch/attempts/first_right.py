"""Runs attempts until one is right at every size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onnxpatch.attempts.attempt import Attempt
from onnxpatch.attempts.attempt_log import AttemptLog
from onnxpatch.attempts.course import next_attempt
from onnxpatch.attempts.failure import Failure
from onnxpatch.attempts.narrowed import Bounds, without_small_sizes
from onnxpatch.attempts.one_attempt import Proven
from onnxpatch.errors import ExportError, VerificationError
from onnxpatch.exporters.dynamo import OpsetNotWritten
from onnxpatch.results.attempt_result import attempt_lines
from onnxpatch.results.report import Report
from onnxpatch.settings import Exporter


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


def refusal(log: AttemptLog) -> ExportError | VerificationError:
    """The first attempt's error. If there were several attempts, its message lists them."""
    error, results = log.error, log.results()
    assert error is not None
    if len(results) > 1:
        tried = "\n  ".join([f"{len(results)} attempts were made, and none is right:", *attempt_lines(results)])
        error.args = (f"{error.args[0]}\n{tried}", *error.args[1:])
        error.attempts = tuple(results)
    if isinstance(error, VerificationError) and isinstance(error.report, Report):
        error.report = replace(error.report, attempts=results, call="")
    return error
