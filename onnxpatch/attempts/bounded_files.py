"""Makes files that are right at some sizes only, and writes these sizes into them.

A file that is wrong only at sizes far below the example's is delivered unless bounds="never". With bounds="narrow" so
is one that is right in any range of sizes, or at multiples of one.
"""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from onnxpatch.attempts.attempt import Attempt
from onnxpatch.attempts.attempt_log import AttemptLog
from onnxpatch.attempts.one_attempt import Proven
from onnxpatch.inputs.dims import relations
from onnxpatch.onnxfile import size_bounds
from onnxpatch.onnxfile.metadata import CALL
from onnxpatch.onnxfile.size_bounds import SizeBound
from onnxpatch.verification.input_matching import Feed, feed_of
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.reference import Reference
from onnxpatch.verification.right_sizes import RightSizes, related_probes
from onnxpatch.verification.runner import check_at, compare_graphs, declared_limits

Bounds = Literal["narrow", "never"]
_FIXED = 6  # attempts with static dimensions
_FAR_BELOW = 8  # times a size goes into the example's


def bounded_file(log: AttemptLog) -> Proven | None:
    """A file that is right within bounds of any kind, or None.

    First the wrong files of the attempts so far are used; where a relation between sizes holds wherever one is right,
    it is declared in a new export. If every attempt was refused, exports with static dimensions are tried: each
    dimension alone, then all.
    """
    for wrong in list(log.wrong):
        found = _related(log, wrong) or _narrow(log, wrong)
        if found is not None:
            return found
    for attempt in _with_fixed_sizes(log) if not log.wrong else ():
        if log.shared.budget.over():
            return None
        outcome = log.attempt(attempt, keep_wrong=True)
        made = outcome if isinstance(outcome, Proven) else next((w for w in log.wrong if w.attempt == attempt), None)
        found = _narrow(log, made) if made is not None else None
        if found is not None:
            return found
    return None


def _related(log: AttemptLog, wrong: Proven) -> Proven | None:
    """A file made anew with the relation between sizes in its declaration, where the wrong one has such a relation."""
    reference, told = log.shared.reference, {(one.dimension, one.declare) for one in wrong.report.right_within}
    assert reference is not None
    for relation in (one for one in relations(reference.dims) if (one.name, one.size.text) in told):
        more = related_probes(reference.oracle, relation)
        reference.probes = list(dict.fromkeys((*reference.probes, *more)))
        outcome = log.attempt(replace(wrong.attempt, related=(relation,)))
        if isinstance(outcome, Proven):
            bounds, call = {relation.name: relation.words}, wrong.attempt.call(log.shared.request, narrow=True)
            found = replace(outcome, report=replace(outcome.report, bounds=bounds, call=call))
            log.made[-1] = found
            return found
    return None


def _narrow(log: AttemptLog, made: Proven) -> Proven | None:
    found = _within_bounds(log, made, lambda _: True, made.attempt.call(log.shared.request, narrow=True))
    if found is not None:
        log.made.append(found)
    return found


def _with_fixed_sizes(log: AttemptLog) -> Iterator[Attempt]:
    # An operator without a translation has none at fixed sizes either.
    last = [one.attempt for one in log.failed if one.kind == "refused" and not one.operator]
    names = [dim.name for dim in log.shared.request.dims]
    fixed = [(name,) for name in names][: _FIXED - 1] + ([tuple(names)] if len(names) > 1 else [])
    yield from (replace(last[0], fixed=which) for which in fixed if last)


def without_small_sizes(log: AttemptLog, made: Proven) -> Proven | None:
    """A wrong file, stated to be right from some sizes on: if it is wrong only at sizes far below the example's.

    Far below: at most an eighth of the example's, or where eager itself answers with NaN or with empty tensors. None
    where the file is wrong elsewhere too.
    """
    reference = log.shared.reference
    assert reference is not None
    is_low = functools.partial(_is_far_below, reference)

    def are_low(bounds: Sequence[SizeBound]) -> bool:
        ends = {dim.name: dim.maximum for dim in reference.dims}
        open_ended = all(bound.multiple == 1 and bound.high == ends[bound.name] for bound in bounds)
        return open_ended and all(is_low({bound.name: size}) for bound in bounds for size in bound.wrong)

    # Most wrong files are wrong at large sizes too: seen without a search.
    if not all(is_low(check.sizes) for check in made.report.checks if not check.ok):
        return None
    return _within_bounds(log, made, are_low, made.attempt.call(log.shared.request))


def _is_far_below(reference: Reference, sizes: Mapping[str, int]) -> bool:
    """Whether sizes are far below the example's, or eager's answer there says nothing."""
    if any(_FAR_BELOW * size <= reference.oracle.example.get(name, 0) for name, size in sizes.items()):
        return True
    probe = reference.oracle.at(sizes)
    return probe is not None and _says_nothing(probe)


def _says_nothing(probe: Probe) -> bool:
    """Whether eager's answer has no elements, or NaN and infinity."""
    answers = [one for one in probe.expected if one is not None]
    return any(not one.numel() or not bool(one.isfinite().all()) for one in answers)


def _within_bounds(
    log: AttemptLog, made: Proven, wanted: Callable[[Sequence[SizeBound]], bool], call: str
) -> Proven | None:
    """The file with the sizes at which it is right in its metadata, compared again there; None if there are none.

    wanted: whether such bounds may be delivered. call: the call of `export` that makes the file.
    """
    start, reference, shared = time.perf_counter(), log.shared.reference, log.shared
    assert reference is not None
    graph = shared.loaded(made.exported.path)[0]
    feed = feed_of(graph, made.exported.request)
    search = RightSizes(
        reference.oracle,
        lambda probe: check_at(graph, feed, probe, reference.eager, shared.tolerance).ok,
        made.attempt.fixed,
    )
    bounds = [
        replace(_placed(bound, feed, reference), wrong=search.wrong_at(bound))
        for bound in search.bounds(made.report.checks) or ()
    ]
    if not bounds or not wanted(bounds):
        return None
    size_bounds.write_bounds(made.exported.path, bounds, {CALL: call})
    # A copy: other attempts are not compared at the edges of this file's bounds.
    inside = copy.copy(reference)
    inside.probes = list(dict.fromkeys((*reference.probes, *search.edges(bounds))))
    report = replace(
        made.report, checks=[], frozen=[], guards=[], notes=list(made.exported.notes),
        bounds={bound.name: bound.words for bound in bounds}, call=call, seconds=dict(made.report.seconds),
    )  # fmt: skip
    written = shared.loaded(made.exported.path)
    limits = declared_limits(written[0], feed, reference.dims)
    conditions = getattr(made.exported.program, "exported_program", None)
    report = compare_graphs(written, feed, inside, report, conditions=conditions, limits=limits)
    if not all(check.ok for check in report.checks):
        return None
    return replace(made, report=report, seconds=made.seconds + time.perf_counter() - start)


def _placed(bound: SizeBound, feed: Feed, reference: Reference) -> SizeBound:
    """The bound with its places, the inputs and axes of the file that have its size."""
    inputs = {leaf: name for name, leaf in feed.leaves.items()}
    (dim,) = (dim for dim in reference.dims if dim.name == bound.name)
    places = tuple((inputs[leaf], axis) for leaf, axis, size in dim.places if leaf in inputs and size.is_plain)
    return replace(bound, places=places)
