"""`bounds="narrow"`: if no attempt is right at every size, a file that is right at some, which it states."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from dataclasses import replace

from onnxpatch.attempts.attempt import Attempt
from onnxpatch.attempts.first_right import Way
from onnxpatch.attempts.one_attempt import Proven
from onnxpatch.onnxfile import size_bounds
from onnxpatch.onnxfile.runtime import load_graphs
from onnxpatch.onnxfile.size_bounds import SizeBound
from onnxpatch.onnxfile.stamp import CALL
from onnxpatch.verification.input_matching import Feed, match_inputs
from onnxpatch.verification.reference import Reference
from onnxpatch.verification.right_sizes import RightSizes
from onnxpatch.verification.runner import check_at, declared_limits, run

_FIXED = 6  # attempts with static dimensions


def narrowed(way: Way) -> Proven | None:
    """A file that is right within bounds, or None.

    First the wrong files of the attempts so far are used. If every attempt was refused, exports with static dimensions
    are tried: each dimension alone, then all.
    """
    for wrong in list(way.wrong):
        found = _within_bounds(way, wrong)
        if found is not None:
            return found
    for attempt in _with_fixed_sizes(way) if not way.wrong else ():
        if way.shared.budget.over():
            return None
        outcome = way.attempt(attempt)
        made = outcome if isinstance(outcome, Proven) else next((w for w in way.wrong if w.attempt == attempt), None)
        found = _within_bounds(way, made) if made is not None else None
        if found is not None:
            return found
    return None


def _with_fixed_sizes(way: Way) -> Iterator[Attempt]:
    # An operator without a translation has none at fixed sizes either.
    last = [one.attempt for one in way.failed if one.kind == "refused" and not one.operator]
    names = [dim.name for dim in way.shared.request.dims]
    fixed = [(name,) for name in names][: _FIXED - 1] + ([tuple(names)] if len(names) > 1 else [])
    yield from (replace(last[0], fixed=which) for which in fixed if last)


def _within_bounds(way: Way, made: Proven) -> Proven | None:
    """The file with the sizes at which it is right in its metadata, compared again there; None if there are none."""
    start, reference, shared = time.perf_counter(), way.shared.reference, way.shared
    assert reference is not None
    graph = load_graphs(made.exported.path, shared.runtime, reference.budget.run_seconds, shared.providers)[0]
    request = made.exported.request
    feed = match_inputs(graph, request.inputs, request.names_among([one.name for one in graph.inputs]))
    search = RightSizes(
        reference.oracle,
        lambda probe: check_at(graph, feed, probe, reference.eager, shared.tolerance).ok,
        made.attempt.fixed,
    )
    bounds = [_placed(bound, feed, reference) for bound in search.bounds(made.report.checks) or ()]
    if not bounds:
        return None
    call = made.attempt.call(shared.request, narrow=True)
    size_bounds.write(made.exported.path, bounds, {CALL: call})
    # A copy: other attempts are not compared at the edges of this file's bounds.
    inside = copy.copy(reference)
    inside.probes = list({id(p): p for p in (*reference.probes, *search.edges(bounds))}.values())
    report = replace(
        made.report, checks=[], frozen=[], guards=[], notes=list(made.exported.notes),
        bounds={bound.name: bound.words for bound in bounds}, call=call, seconds=dict(made.report.seconds),
    )  # fmt: skip
    written = load_graphs(made.exported.path, shared.runtime, reference.budget.run_seconds, shared.providers)
    limits = declared_limits(written[0], feed, reference.dims)
    conditions = getattr(made.exported.program, "exported_program", None)
    report = run(written, feed, inside, report, conditions=conditions, limits=limits)
    if not all(check.ok for check in report.checks):
        return None
    found = replace(made, report=report, seconds=time.perf_counter() - start)
    way.made.append(found)
    return found


def _placed(bound: SizeBound, feed: Feed, reference: Reference) -> SizeBound:
    """The bound with its places: the inputs and axes of the file that have its size."""
    inputs = {leaf: name for name, leaf in feed.leaves.items()}
    (dim,) = (dim for dim in reference.dims if dim.name == bound.name)
    places = tuple((inputs[leaf], axis) for leaf, axis, size in dim.places if leaf in inputs and size.is_plain)
    return replace(bound, places=places)
