"""Runs attempts until one is right, and keeps why each of the others failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from onnxpatch.attempts.attempt import Attempt
from onnxpatch.attempts.course import next_attempt
from onnxpatch.attempts.failure import Failure
from onnxpatch.attempts.one_attempt import Failed, Proven, Shared, attempt_once
from onnxpatch.errors import ExportError, VerificationError
from onnxpatch.exporters.dynamo import OpsetNotWritten
from onnxpatch.results.attempt_result import AttemptResult, attempt_lines
from onnxpatch.results.report import Report
from onnxpatch.settings import Exporter


@dataclass
class Way:
    """The attempts of one export so far.

    first: the one that was asked for. made: the outcome of each, oldest first. error: the first one's error. wrong:
    wrong files that were kept. figures: by attempt, what `prefer` measured.
    """

    shared: Shared
    first: Attempt
    made: list[Proven | Failure] = field(default_factory=list)
    error: ExportError | VerificationError | None = None
    wrong: list[Proven] = field(default_factory=list)
    figures: dict[Attempt, dict[str, Any]] = field(default_factory=dict)

    @property
    def failed(self) -> list[Failure]:
        return [one for one in self.made if isinstance(one, Failure)]

    def outcome_of(self, attempt: Attempt) -> Proven | Failure | None:
        """The outcome of an attempt, if it was made already."""
        return next((one for one in self.made if one.attempt == attempt), None)

    def attempt(self, attempt: Attempt) -> Proven | Failure:
        """Make one attempt, and keep its outcome."""
        shared = replace(self.shared, progress=self._progress(attempt)) if self.made else self.shared
        made = attempt_once(attempt, shared)
        outcome = made.failure if isinstance(made, Failed) else made
        if isinstance(made, Failed):
            self.error = self.error or made.error  # only the first: a traceback keeps graphs and tensors alive
            self.wrong += [made.wrong] if made.wrong is not None else []
        self.made.append(outcome)
        return outcome

    def results(self, delivered: Proven | None = None) -> list[AttemptResult]:
        """The attempts, as the report lists them."""
        return [self._result(one, delivered) for one in self.made]

    def _result(self, one: Proven | Failure, delivered: Proven | None) -> AttemptResult:
        return replace(_result(one, self.first, one is delivered), **self.figures.get(one.attempt, {}))

    def _progress(self, attempt: Attempt) -> Callable[[str, int, int], None] | None:
        progress, title = self.shared.progress, f"attempt {len(self.made) + 1}, {attempt.name(self.first)}"
        if progress is None:
            return None
        progress(title, 0, 0)
        return lambda stage, done, of: progress(f"{title}: {stage}", done, of)


def first_right(way: Way, exporters: Sequence[Exporter]) -> Proven | None:
    """Make attempts until one is right. Returns it; None if no other attempt can help."""
    attempt: Attempt | None = way.first
    while attempt is not None:
        try:
            outcome = way.attempt(attempt)
        except OpsetNotWritten as error:
            # No other attempt with this exporter can write the opset that was asked for.
            exporters = [one for one in exporters if one != attempt.exporter]
            if not exporters:
                raise
            way.made.append(Failure(attempt, "refused", str(error)))
        else:
            if isinstance(outcome, Proven):
                return outcome
        attempt = None if way.shared.budget.over() else next_attempt(way.first, exporters, way.failed)
    return None


def refusal(way: Way) -> ExportError | VerificationError:
    """The first attempt's error. If there were several attempts, its message lists them."""
    error, results = way.error, way.results()
    assert error is not None
    if len(results) > 1:
        tried = "\n  ".join([f"{len(results)} attempts were made, and none is right:", *attempt_lines(results)])
        error.args = (f"{error.args[0]}\n{tried}", *error.args[1:])
        error.attempts = tuple(results)
    if isinstance(error, VerificationError) and isinstance(error.report, Report):
        error.report = replace(error.report, attempts=results, call="")
    return error


def _result(one: Proven | Failure, first: Attempt, delivered: bool) -> AttemptResult:
    made = one.attempt
    result = AttemptResult(
        made.name(first), made.exporter, made.opset, made.plain, made.exclude, made.branches, seconds=one.seconds
    )
    if isinstance(one, Proven):
        name = f"{result.name}, bounds='narrow'" if one.report.bounds else result.name
        return replace(result, name=name, verdict=one.report.verdict, delivered=delivered)
    verdict = "wrong" if one.kind == "wrong" else "refused"
    stand_in = next(iter(one.at_fault), "")
    return replace(result, verdict=verdict, error=one.error, module=one.module, line=one.line, stand_in=stand_in)
