"""`bounds="narrow"`: the widest sizes for which a wrong file is right, found by asking it and the model at more sizes.

One dimension after the other is moved alone, with the others as in the example:

    right 1 3 4   wrong 5 7      ->  h in 1..4                 the edge between right and wrong, by halving
    right 28 42   wrong 29 35    ->  h in multiples of 14      the smallest step of which every multiple is right
    wrong everywhere else        ->  h = 64

Then the file is held against the model once more: at all probes inside, at the edges and at the corners.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.onnxfile.size_bounds import SizeBound
from onnxpatch.results.report import Checked
from onnxpatch.verification.input_matching import Feed
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.reference import Reference
from onnxpatch.verification.runner import check_graph
from onnxpatch.verification.undetermined import excuse_unsteady

_QUESTIONS = 160  # sizes that eager is asked about, in all
_REACH = 4  # times the example: how far a range without an end is looked at, and how wide it counts
_PROVING = 2  # multiples beside the example that have to be right


class SizeSearch:
    """For which sizes a graph is right. places: by the name of a dimension, the inputs and axes that have its size."""

    def __init__(
        self,
        graph: Graph,
        feed: Feed,
        reference: Reference,
        tolerance: float,
        fixed: Sequence[str] = (),
    ) -> None:
        self._graph, self._feed, self._tolerance = graph, feed, tolerance
        self.reference = reference
        self.dims = [dim for dim in reference.dims if dim.name not in fixed]
        budget = replace(reference.budget, questions=_QUESTIONS, operations=float("inf"))
        self._oracle = Oracle(reference.eager, reference.inputs, reference.dims, budget)
        self._oracle.start(reference.eager.ask(reference.inputs.values()))
        self._known: dict[tuple[tuple[str, int], ...], bool | None] = {}
        self._fixed = [self._bound(dim, dim.size, dim.size) for dim in reference.dims if dim.name in fixed]

    def bounds(self, checks: Sequence[Checked]) -> list[SizeBound] | None:
        """The bounds of the dimensions that need one; None where the graph is wrong at the example's own sizes.

        checks: of the whole graph, from which the search starts.
        """
        example = {dim.name: dim.size for dim in self.reference.dims}
        if any(not check.ok and {**example, **check.sizes} == example for check in checks):
            return None
        for check in checks:
            self._known[self._key(check.sizes)] = check.ok
        found = [self._alone(dim) for dim in self.dims]
        bounds = [*self._fixed, *(bound for bound in found if bound is not None)]
        bounded = {bound.name for bound in bounds}
        for dim in (dim for dim in self.dims if dim.name in bounded):
            # Dimensions may be right alone and wrong together: then one after the other keeps its size.
            inside = [check for check in checks if self.admits(bounds, check.sizes)]
            if all(check.ok for check in inside) and all(map(self._is_right, self.edges(bounds))):
                break
            bounds = [*(bound for bound in bounds if bound.name != dim.name), self._bound(dim, dim.size, dim.size)]
        return bounds

    def edges(self, bounds: Sequence[SizeBound]) -> list[Probe]:
        """Probes at each end of each bound, and at the corners, where eager accepts them."""
        example = {dim.name: dim.size for dim in self.reference.dims}
        ends = {bound.name: bound.edges(example[bound.name]) for bound in bounds}
        alone = [{name: size} for name, sizes in ends.items() for size in sizes]
        corners = [dict(zip(ends, corner, strict=True)) for corner in itertools.product(*ends.values())][:8]
        asked = [self._oracle.at(sizes, must=True, far=True) for sizes in (*alone, *corners)]
        return list({id(probe): probe for probe in asked if probe is not None}.values())

    @staticmethod
    def admits(bounds: Sequence[SizeBound], sizes: Mapping[str, int]) -> bool:
        """Whether all sizes are within the bounds."""
        return all(bound.admits(sizes[bound.name]) for bound in bounds if bound.name in sizes)

    # -------------------------------------------------------------- one dimension
    def _alone(self, dim: DynamicDim) -> SizeBound | None:
        """The bound of one dimension, the others as in the example; None where it needs none."""
        tried = self._moved_alone(dim)
        if all(tried.values()):
            return None
        ways = [self._range(dim, tried, 1)]
        ways += itertools.islice(filter(None, (self._multiple(dim, step) for step in _steps(dim.size))), 1)
        return max(ways, key=lambda bound: self._width(dim, bound))

    def _moved_alone(self, dim: DynamicDim) -> dict[int, bool]:
        """Right or wrong by size, where this dimension alone was moved."""
        example = {one.name: one.size for one in self.reference.dims}
        found = {}
        for key, ok in self._known.items():
            sizes = {**example, **dict(key)}
            if ok is not None and all(sizes[name] == size for name, size in example.items() if name != dim.name):
                found[sizes[dim.name]] = ok
        return found

    def _range(self, dim: DynamicDim, tried: Mapping[int, bool], step: int) -> SizeBound:
        """The widest range around the example, of multiples of `step`, between the sizes that are wrong."""
        wrong = [size for size, ok in tried.items() if not ok and size % step == 0]
        below = max((size for size in wrong if size < dim.size), default=None)
        above = min((size for size in wrong if size > dim.size), default=None)
        low = self._edge(dim, below, step) if below is not None else None
        high = self._edge(dim, above, step) if above is not None else None
        least = -(-dim.minimum // step) * step
        return self._bound(dim, least if low is None else low, dim.maximum if high is None else high, step)

    def _edge(self, dim: DynamicDim, wrong: int, step: int) -> int:
        """The last right size from the example towards a wrong one, by halving."""
        right = dim.size
        while abs(wrong - right) > step:
            middle = right + (wrong - right) // (2 * step) * step if wrong > right else (
                right - (right - wrong) // (2 * step) * step)  # fmt: skip
            middle = middle if middle != right else right + (step if wrong > right else -step)
            if self._right_at(dim, middle):
                right = middle
            else:  # also where eager refuses it: nothing is claimed of a size that cannot be asked about
                wrong = middle
        return right

    def _multiple(self, dim: DynamicDim, step: int) -> SizeBound | None:
        """The multiples of `step`, if some beside the example are right."""
        if any(not ok and size % step == 0 and size > dim.size for size, ok in self._moved_alone(dim).items()):
            return None
        near = (dim.size + step, 2 * dim.size, dim.size + 3 * step, dim.size - step, step)
        asked = {size: self._right_at(dim, size) for size in near if size > 0 and size != dim.size}
        verdicts = {size: ok for size, ok in asked.items() if ok is not None}
        if sum(verdicts.values()) < _PROVING or not all(ok for size, ok in verdicts.items() if size > dim.size):
            return None
        return self._range(dim, self._moved_alone(dim), step)

    def _width(self, dim: DynamicDim, bound: SizeBound) -> int:
        """How many sizes a bound admits that eager may accept, up to some times the example."""
        high = min(bound.high or _REACH * dim.size, _REACH * dim.size)
        return len(range(bound.low, high + 1, bound.multiple))

    # -------------------------------------------------------------- one size
    def _right_at(self, dim: DynamicDim, size: int) -> bool | None:
        """Whether the graph is right there; None where eager refuses the size."""
        key = self._key({dim.name: size})
        if key not in self._known:
            probe = self._oracle.at({dim.name: size}, must=True, far=True)
            self._known[key] = None if probe is None else self._is_right(probe)
        return self._known[key]

    def _is_right(self, probe: Probe) -> bool:
        checks = check_graph(self._graph, self._feed, [probe], self._tolerance)
        return excuse_unsteady(checks, [probe], self.reference.eager, self._tolerance)[0].ok

    def _key(self, sizes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
        return tuple((dim.name, sizes.get(dim.name, dim.size)) for dim in self.reference.dims)

    def _bound(self, dim: DynamicDim, low: int, high: int | None, step: int = 1) -> SizeBound:
        inputs = {leaf: name for name, leaf in self._feed.leaves.items()}
        places = tuple((inputs[leaf], axis) for leaf, axis, size in dim.places if leaf in inputs and size.is_plain)
        return SizeBound(dim.name, low, high, step, places)


def _steps(size: int) -> Iterator[int]:
    """The steps of which the example's size is a multiple, the smallest first."""
    return (step for step in range(2, size) if size % step == 0)
