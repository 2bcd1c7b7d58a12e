"""Compares a graph with eager's answers at every probe, and at sizes that break a dropped guard.

Limits: the sizes that a file is meant for, if these are fewer than eager accepts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from onnxpatch.errors import InputError, RunError
from onnxpatch.inputs.dims import DynamicDim, SizeRelation
from onnxpatch.messages.text import Progress
from onnxpatch.onnxfile import size_bounds
from onnxpatch.onnxfile.graph import random_nodes, unfed_outputs
from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.onnxfile.size_bounds import SizeBound
from onnxpatch.results.checks import Checked, Untried
from onnxpatch.results.quantized_distance import closeness
from onnxpatch.results.report import Report
from onnxpatch.verification.beyond_inputs import beyond_inputs
from onnxpatch.verification.comparison import TOLERANCE, compare_all
from onnxpatch.verification.dropped_guards import Broken, breaking_probes, dropped_guards, guards_of
from onnxpatch.verification.eager import Eager, tells
from onnxpatch.verification.findings import source_line, specialized
from onnxpatch.verification.input_matching import Feed, frozen_inputs
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.reference import Reference
from onnxpatch.verification.right_sizes import right_within
from onnxpatch.verification.undetermined import excused
from onnxpatch.verification.untried import untried

_UNFED = "output {!r} does not depend on the input: what computes it has no ONNX form, and it is the example's result"
_MORE_DRAWS = 2  # further runs of a probe, for a graph that draws random numbers
_TIMES_EAGER = 4  # what eager took at most: a runtime keeps memory that it may use again
_NAMED = 5  # inputs that were not tried
_FIRST = 6  # probes run before those that break a guard; probes are ordered by how informative they are


def compare_graphs(
    graphs: Sequence[Graph],
    feed: Feed,
    reference: Reference,
    made: Report,
    *,
    conditions: object,
    limits: _Limits,
    progress: Progress | None = None,
) -> Report:
    """Compare the graph with the reference. Returns `made`, the report so far, with the findings added.

    graphs: the file, loaded in each runtime that it is compared in. conditions: the ExportedProgram, whose guards the
    ONNX file does not have; None for none. limits: the sizes that the graph is meant for. progress: called with
    (runtime, done, of).
    """
    start = time.perf_counter()
    guards = guards_of(conditions, reference.inputs, reference.dims) if conditions is not None else []
    broken = [one for one in breaking_probes(guards, reference.oracle) if limits.admits(one[1].sizes)]
    probes = [probe for probe in _in_order(reference.probes, broken) if limits.admits(probe.sizes)]
    for graph in graphs:  # a graph that is right takes about as much as eager does
        graph.max_bytes = max(reference.eager.limits[0], _TIMES_EAGER * reference.eager.peak)
    reports = [_in_runtime(graph, feed, reference, made, probes, broken, limits.fixed, progress) for graph in graphs]
    joined = _joined(reports)
    at_none = list(_at_none(graphs, feed, reference, limits)) if joined.ok and not made.compare else []
    told = [*_telling(probes, reports, at_none), *limits.outside(reference.probes)]
    never_ran = _never_ran(reference, told) if joined.ok else None
    return replace(
        joined,
        untried=never_ran or [],
        first_call=reference.changes,
        wrong_at_zero=[name for name, _, right in at_none if not right],
        sides_recorded=never_ran is not None,
        notes=[*joined.notes, *reference.names_of_one_size(), *_too_large(reference), *_beyond(joined, reference)],
        dimensions={dim.name: dim.size for dim in reference.dims},
        refused=reference.oracle.refused,
        first_refusal=reference.oracle.first_refusal,
        seconds={**made.seconds, "verify": reference.seconds + time.perf_counter() - start},
        memory=reference.bytes,
    )


def _never_ran(reference: Reference, told: Sequence[Probe]) -> list[Untried] | None:
    sides = reference.eager.sides
    # Where torch's own layers are all that ran, there is no side to look for.
    return untried(sides, told) if sides.functions or not sides.able else []


def _beyond(joined: Report, reference: Reference) -> list[str]:
    """What a right file has as it was, whatever the inputs tell."""
    sides, kept = reference.eager.sides, reference.kept
    strides = reference.decisions.strides if reference.decisions is not None else ()
    # torch's own layers read nothing else.
    reads = joined.ok and (sides.functions or kept or strides)
    return beyond_inputs(sides, reference.probes, kept, strides) if reads else []


def _at_none(
    graphs: Sequence[Graph], feed: Feed, reference: Reference, limits: _Limits
) -> Iterator[tuple[str, Probe, bool]]:
    """(dimension, probe, whether the file is right) where the model takes none of a dimension, an empty cache say."""
    for dim in reference.dims:
        probe = reference.oracle.empty(dim)
        if probe is not None and limits.admits(probe.sizes):
            yield dim.name, probe, all(check_at(graph, feed, probe, reference.eager, TOLERANCE).ok for graph in graphs)


def _telling(
    probes: Sequence[Probe], reports: Sequence[Report], at_none: Sequence[tuple[str, Probe, bool]]
) -> Iterator[Probe]:
    """The probes at which every runtime is right, and which tell that a side of a condition is."""
    yield from (probe for _, probe, right in at_none if right and tells(probe))
    for probe, *checks in zip(probes, *(one.checks for one in reports), strict=False):
        if tells(probe) and all(check.status == "right" for check in checks):
            yield probe


def _in_runtime(
    graph: Graph,
    feed: Feed,
    reference: Reference,
    made: Report,
    probes: Sequence[Probe],
    broken: Sequence[Broken],
    fixed: Collection[str],
    progress: Progress | None,
) -> Report:
    """The report for one runtime, of as many probes as max_seconds allows. fixed: static dimensions."""

    def compare(probe: Probe) -> Checked:
        return check_at(graph, feed, probe, reference.eager, math.inf if made.compare else made.tolerance)

    random = _draws(graph)
    checks = list(_checked(graph, probes, reference, 1 + _MORE_DRAWS if random else 1, compare, progress))
    if made.compare:
        checks = closeness(made.compare).judged(checks)
    right_everywhere = all(check.ok for check in checks)
    frozen = frozen_inputs(graph, feed, reference.dims)
    constant = [] if right_everywhere else [_UNFED.format(name) for name in unfed_outputs(graph.proto)]
    notes = [*constant, *made.notes, *_skipped(reference, graph, len(probes) - len(checks))]
    return replace(
        made,
        runtime=graph.runtime,
        checks=checks,
        draws=random,
        frozen=frozen if right_everywhere else specialized(graph, feed, frozen, checks, probes),
        guards=dropped_guards(graph, checks, probes, broken),
        notes=notes,
        # How far a quantized file is depends on the data: a size at which it is too far says nothing about sizes.
        right_within=[]
        if right_everywhere or graph.stopped or made.compare
        else right_within(reference.oracle, checks, lambda probe: compare(probe).ok, fixed),
        unproven=[one for one in reference.unproven(checks) if one.dimension not in fixed],
    )


def _checked(
    graph: Graph,
    probes: Sequence[Probe],
    reference: Reference,
    draws: int,
    compare: Callable[[Probe], Checked],
    progress: Progress | None,
) -> Iterator[Checked]:
    """The comparison at each probe, as long as time is left. draws: of a graph that draws random numbers, several."""
    for done, probe in enumerate(probes):
        # The example is compared in any case: without a check there is no verdict.
        if done and (graph.stopped or reference.budget.over()):  # after a run at its time limit others may reach it
            break
        if progress:
            progress(graph.runtime, done, len(probes))
        yield _worst(graph, probe, draws, compare)


def _draws(graph: Graph) -> list[str]:
    """The lines that draw random numbers in the graph; the operator where the line is not known."""
    return list(dict.fromkeys(source_line(node) or node.op_type for node in random_nodes(graph.proto)))


def _worst(graph: Graph, probe: Probe, draws: int, compare: Callable[[Probe], Checked]) -> Checked:
    """The first of some checks at one probe that is not right, or the last one."""
    check = compare(probe)
    # Two draws may be as close as the tolerance by chance: one run in fifty, for noise a tenth as large as its sum.
    for _ in range(draws - 1):
        if check.ok and not graph.stopped:
            check = compare(probe)
    return check


def _joined(reports: Sequence[Report]) -> Report:
    """One report from those of several runtimes. A finding that several of them have is listed once."""
    first = reports[0]
    if len(reports) == 1:
        return first
    # Guards and ranges are read together with the verdict, so they come from the report that is not right.
    worst = next((report for report in reports if not report.ok), first)
    return replace(
        first,
        runtime=", ".join(report.runtime for report in reports),
        checks=[check for report in reports for check in report.checks],
        frozen=list(dict.fromkeys(one for report in reports for one in report.frozen)),
        guards=worst.guards,
        right_within=worst.right_within,
        unproven=worst.unproven,
        notes=list(dict.fromkeys(note for report in reports for note in report.notes)),
    )


def _in_order(probes: Sequence[Probe], broken: Sequence[Broken]) -> list[Probe]:
    """The example, one probe at other sizes, then the rest: so a short max_seconds still gives a verdict."""
    sized = [probe for probe in probes if probe.kind == "size"][:1]
    ordered = (*probes[:1], *sized, *probes[1:_FIRST], *(probe for _, probe in broken), *probes[_FIRST:])
    return list(dict.fromkeys(ordered))


def _skipped(reference: Reference, graph: Graph, not_run: int) -> list[str]:
    """Notes for the report on what the budget left out."""
    if graph.stopped:
        return [f"{not_run} more inputs were not tried"] if not_run else []
    budget, left_out = reference.budget, len(reference.oracle.left_out)
    if not_run or reference.oracle.cut_short:
        return [f"max_seconds={budget.max_seconds:g} was reached: {left_out + not_run} more inputs were not compared"]
    return [f"{left_out} more sizes were skipped: the verification budget was reached"] if left_out else []


def _too_large(reference: Reference) -> list[str]:
    """A note on inputs that were not tried, since eager would take too much memory for them."""
    found, most = list(reference.oracle.too_large), _NAMED
    if not found:
        return []
    more = f" and {len(found) - most} more" if len(found) > most else ""
    limit = f"{reference.eager.limits[0] / 1e6:,.0f} MB"
    why = reference.oracle.too_large[found[0]]
    return [f"not tried, since PyTorch would take more than {limit} for them (max_memory=): "
            f"{'; '.join(found[:most])}{more}; {why}"]  # fmt: skip


def check_at(graph: Graph, feed: Feed, probe: Probe, eager: Eager | None, tolerance: float) -> Checked:
    """Run the graph at one probe. A difference that eager does not determine is marked unsteady, not wrong.

    eager: None to excuse no difference.
    """
    head = Checked(graph.runtime, probe.label, probe.kind, probe.sizes)
    values = feed.of(probe.values)
    # onnxruntime has kernels that divide by a size of 0, or read what is not there.
    if (probe.empty or 0 in probe.sizes.values()) and not graph.survives(values):
        return replace(head, error="it ends the process, at a tensor without elements", status="refused")
    try:
        found = graph.run(values)
    except RunError as error:
        return replace(head, error=str(error), status="refused", node=error.node or "")
    return judged(head, graph.outputs, found, probe, eager, tolerance)


def judged(
    head: Checked, names: Sequence[str], found: Sequence[object], probe: Probe, eager: Eager | None, tolerance: float
) -> Checked:
    """`head` with the comparison of a graph's outputs (`found`) and its verdict.

    eager: what may excuse wrong outputs; None to excuse nothing.
    """
    outputs = compare_all(names, probe.expected, found, tolerance)
    wrong = any(output.reason for output in outputs)
    check = replace(head, outputs=tuple(outputs), status="wrong" if wrong else "right")
    return excused(check, found, probe, eager, tolerance) if wrong and eager is not None else check


@dataclass(frozen=True)
class _Limits:
    """Bounds by the name of a dimension; a dimension without one has no limit. relations: of the sizes."""

    bounds: Mapping[str, SizeBound]
    relations: Sequence[SizeRelation] = ()

    def admits(self, sizes: Mapping[str, int]) -> bool:
        """Whether all of these sizes are within the bounds, and have the relations."""
        within = all(bound.admits(sizes[name]) for name, bound in self.bounds.items() if name in sizes)
        return within and all(one.holds(sizes) for one in self.relations if one.name in sizes)

    def outside(self, probes: Sequence[Probe]) -> list[Probe]:
        """The probes beyond: a side that is taken there alone is no matter of the file."""
        return [probe for probe in probes if not self.admits(probe.sizes)]

    @property
    def fixed(self) -> frozenset[str]:
        """Dimensions that have one size only."""
        return frozenset(name for name, bound in self.bounds.items() if bound.low == bound.high)

    def edges(self, dims: Sequence[DynamicDim]) -> Iterator[dict[str, int]]:
        """The sizes at the ends of each bound, one dimension at a time."""
        for dim in dims:
            if dim.name in self.bounds:
                yield from ({dim.name: size} for size in self.bounds[dim.name].edges(dim.size))

    def refuse_outside(self, dims: Sequence[DynamicDim]) -> None:
        """Raise InputError for an example at a size for which the file is not meant: there is nothing to compare."""
        for dim in dims:
            if not self.admits({dim.name: dim.size}):
                raise InputError(
                    f"{dim.name} is {dim.size} in the example, and the file says that it is right for "
                    f"{self.words[dim.name]} only: give an example within"
                )

    @property
    def words(self) -> dict[str, str]:
        """The bounds as text: `h in 2..64`."""
        return {name: bound.words for name, bound in self.bounds.items()}


def fixed_limits(dims: Sequence[DynamicDim], names: Sequence[str], related: Sequence[SizeRelation]) -> _Limits:
    """The limits of an export in which these dimensions keep the example's size, and others follow from each other."""
    return _Limits({dim.name: SizeBound(dim.name, dim.size, dim.size) for dim in dims if dim.name in names}, related)


def declared_limits(graph: Graph, feed: Feed, dims: Sequence[DynamicDim]) -> _Limits:
    """The limits in a file's metadata. Dimensions are matched by their axes, since names may differ."""
    bounds = size_bounds.read_bounds({entry.key: entry.value for entry in graph.proto.metadata_props})
    by_place = {(feed.leaves.get(name), axis): bound for bound in bounds for name, axis in bound.places}
    places = [(dim.name, (leaf, axis)) for dim in dims for leaf, axis, size in dim.places if size.is_plain]
    return _Limits({name: by_place[place] for name, place in places if place in by_place})
