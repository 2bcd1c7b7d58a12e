"""`AttemptLog`: the attempts of one export so far, with why each failed, and what later ones may take.

`prefer=` chooses the fastest or the smallest of those whose files are right. The files are run in turns, so that other
load on the machine affects all of them alike.
"""

from __future__ import annotations

import logging
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from onnxpatch.attempts.attempt import Attempt
from onnxpatch.attempts.failure import Failure
from onnxpatch.attempts.one_attempt import ExportContext, Proven, attempt_once
from onnxpatch.errors import ExportError, VerificationError
from onnxpatch.messages.text import Progress, one_line, tell
from onnxpatch.onnxfile.mapped_weights import bytes_beside
from onnxpatch.results.checks import AttemptResult
from onnxpatch.settings import Exporter
from onnxpatch.verification.input_matching import feed_of
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.reference import Reference

_TIMES_THE_FIRST, _LEAST_SECONDS, _ALL_SECONDS = 5, 60.0, 300.0
"""What the exporter may take in a later attempt, of processor time: so many times the first attempt's, once if that did
not end, at least some seconds; and in all later attempts together, with the first if that did not end. With
max_seconds= that limit counts alone."""
_log = logging.getLogger("onnxpatch")


@dataclass
class AttemptLog:
    """The attempts of one export so far.

    first: the one that was asked for. made: the outcome of each, oldest first. error: the first one's error. wrong:
    wrong files that were kept. bounded: the first file that is wrong at sizes far below the example's only. figures: by
    attempt, what `prefer` measured. first_seconds, later_seconds: processor time of the first, and of all others.
    """

    shared: ExportContext
    first: Attempt
    made: list[Proven | Failure] = field(default_factory=list)
    error: ExportError | VerificationError | None = None
    wrong: list[Proven] = field(default_factory=list)
    bounded: Proven | None = None
    figures: dict[Attempt, dict[str, Any]] = field(default_factory=dict)
    first_seconds: float = 0.0
    later_seconds: float = 0.0

    @property
    def failed(self) -> list[Failure]:
        return [one for one in self.made if isinstance(one, Failure)]

    @property
    def over(self) -> bool:
        """Whether no further attempt may be made: max_seconds, or the processor time of later attempts, is used up."""
        return self.shared.budget.over() or self._seconds_left() == 0

    def outcome_of(self, attempt: Attempt) -> Proven | Failure | None:
        """The outcome of an attempt, if it was made already."""
        return next((one for one in self.made if one.attempt == attempt), None)

    def attempt(self, attempt: Attempt, keep_wrong: bool = False) -> Proven | Failure:
        """Make one attempt, and keep its outcome. keep_wrong: also its file, in `wrong`, if this is wrong."""
        shared = replace(self.shared, keep_wrong=keep_wrong)
        if self.made:
            shared = replace(shared, progress=self._progress(attempt), processor_seconds=self._seconds_left())
        start = time.process_time()
        made = attempt_once(attempt, shared)
        seconds = time.process_time() - start
        if self.made:
            self.later_seconds += seconds
        else:
            self.first_seconds = seconds
        outcome = made if isinstance(made, Proven) else made.failure
        if not isinstance(made, Proven):
            self.error = self.error or made.error  # only the first: a traceback keeps graphs and tensors alive
            self.wrong += [made.wrong] if made.wrong is not None else []
        self.made.append(outcome)
        return outcome

    def drop(self, wrong: Proven) -> None:
        """Delete a wrong file: it may have gigabytes, which the next attempt needs."""
        self.wrong.remove(wrong)
        shutil.rmtree(wrong.exported.path.parent, ignore_errors=True)

    def deliver_bounded(self) -> Proven | None:
        """The file that is wrong at the smallest sizes only, if there is one, in place of its failure."""
        found = self.bounded
        if found is not None:
            self.made = [found if one.attempt == found.attempt else one for one in self.made]
        return found

    def results(self, delivered: Proven | None = None) -> list[AttemptResult]:
        """The attempts, as the report lists them."""
        results = ((one, _result(one, self.first, one is delivered)) for one in self.made)
        return [replace(result, **self.figures.get(one.attempt, {})) for one, result in results]

    def _seconds_left(self) -> float | None:
        """What the exporter may take in the next attempt, of processor time; None for no limit."""
        if self.shared.budget.max_seconds is not None:
            return None
        cut = bool(self.failed) and self.failed[0].kind == "cut"
        left = max(0.0, _ALL_SECONDS - self.later_seconds - cut * self.first_seconds)
        return min(left, max(_LEAST_SECONDS, (1 if cut else _TIMES_THE_FIRST) * self.first_seconds))

    def _progress(self, attempt: Attempt) -> Progress | None:
        progress, title = self.shared.progress, f"attempt {len(self.made) + 1}, {attempt.name(self.first)}"
        limit = self._seconds_left()
        within = f" (at most {limit:.0f} s of processor time)" if limit is not None else ""
        line = f"{type(self.shared.request.model).__name__}: {title}{within}"
        _log.info("%s", line)
        if self.shared.announce:
            tell(f"onnxpatch: {one_line(line)}")
        if progress is None:
            return None
        progress(title, 0, 0)
        return lambda stage, done, of: progress(f"{title}: {stage}", done, of)


def _result(one: Proven | Failure, first: Attempt, delivered: bool) -> AttemptResult:
    made = one.attempt
    result = AttemptResult(
        made.name(first), made.exporter, made.opset, made.plain, made.exclude, made.branches, seconds=one.seconds
    )
    if isinstance(one, Proven):
        name = f"{result.name}, bounds='narrow'" if "bounds=" in one.report.call else result.name
        return replace(result, name=name, verdict=one.report.verdict, delivered=delivered)
    verdict = "wrong" if one.kind == "wrong" else "refused"
    stand_in = next(iter(one.at_fault), "")
    return replace(result, verdict=verdict, error=one.error, module=one.module, line=one.line, stand_in=stand_in)


Prefer = Literal["latency", "size"]
_ROUNDS = 15
_WORTH = 0.97  # of the first file's time: less of a gain may be noise


def best_of(log: AttemptLog, found: Proven, exporters: Sequence[Exporter], prefer: Prefer) -> Proven:
    """Make the attempts that may be better than `found`, and choose among all that are right."""
    for attempt in _rivals(log.first, found.attempt, exporters):
        if log.outcome_of(attempt) is None and not log.over:
            log.attempt(attempt)
    proven = [one for one in log.made if isinstance(one, Proven) and one.report.ok] or [found]
    figures: Sequence[float]
    if prefer == "size":
        figures, name, share = [bytes_beside(one.exported.path) for one in proven], "bytes", 1.0
    else:  # times vary from run to run
        figures, name, share = _milliseconds(log, proven), "milliseconds", _WORTH
    for one, figure in zip(proven, figures, strict=True):
        log.figures[one.attempt] = {name: figure}
    least, best = min(zip(figures, proven, strict=True), key=lambda pair: pair[0])
    own = next((figure for one, figure in zip(proven, figures, strict=True) if one is found), None)
    # Where nothing is clearly better, the file that was asked for is delivered.
    return found if own is not None and least >= share * own else best


def _rivals(first: Attempt, found: Attempt, exporters: Sequence[Exporter]) -> Iterator[Attempt]:
    """Other attempts that may be right: with and without patches, with each exporter."""
    for exporter in exporters:
        yield replace(found, exporter=exporter)
        yield replace(first, exporter=exporter)
        if not found.branches:
            yield replace(first, exporter=exporter).as_plain()


def _milliseconds(log: AttemptLog, proven: Sequence[Proven]) -> list[float]:
    """The time of one run at the example and one at the largest probe, together; the median of several rounds."""
    reference = log.shared.reference
    assert reference is not None
    # Of several runtimes, the first is measured.
    graphs = [log.shared.loaded(one.exported.path)[0] for one in proven]
    runs = [(graph, feed_of(graph, one.exported.request)) for graph, one in zip(graphs, proven, strict=True)]
    times: list[list[float]] = [[] for _ in proven]
    for _ in range(_ROUNDS):
        for (graph, feed), kept in zip(runs, times, strict=True):
            start = time.perf_counter()
            for probe in _measured_at(reference):
                graph.run(feed.of(probe.values))
            kept.append(1000 * (time.perf_counter() - start))
        if log.shared.budget.over():
            break
    return [statistics.median(kept) for kept in times]


def _measured_at(reference: Reference) -> list[Probe]:
    """The example, and the largest input that was compared."""
    example, largest = reference.probes[0], max(reference.probes, key=_elements)
    return [example] if largest is example else [example, largest]


def _elements(probe: Probe) -> int:
    return sum(value.numel() for value in probe.values if isinstance(value, torch.Tensor))
