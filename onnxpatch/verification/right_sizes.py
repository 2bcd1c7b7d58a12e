"""For which sizes a wrong file is right: found by asking the file and eager at more sizes.

    right 1 3 4   wrong 5 7      ->  h in 1..4                 the edge between right and wrong, by bisection
    right 28 42   wrong 29 35    ->  h in multiples of 14      the smallest step of which every multiple is right
    wrong everywhere else        ->  h = 64
    right wherever t = past + n  ->  t = past+n                a relation that every right size has, and no wrong one

One dimension after the other is moved alone, with the others as in the example. A report proposes these sizes as
`Dim("h", max=4)`; `bounds="narrow"` writes them into the file.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from onnxpatch.inputs.dims import DynamicDim, SizeRelation, relations, sizes_with
from onnxpatch.onnxfile.size_bounds import SizeBound
from onnxpatch.results.checks import Checked, RightWithin
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Probe

MOST_TRIED = 12
_LEAST_TRIED = 3


def right_relation(oracle: Oracle, checks: Sequence[Checked], right: Callable[[Probe], bool]) -> RightWithin | None:
    """The first relation that all right checks have and no wrong one has, and that is right at other sizes as well."""
    for relation in relations(oracle.dims):
        if all(_explains(relation, {**oracle.example, **check.sizes}, check.ok) for check in checks):
            oracle.reserve(2 * MOST_TRIED)
            probes = related_probes(oracle, relation)
            if len(probes) >= _LEAST_TRIED and all(map(right, probes)):
                text, of = relation.size.text, len(probes)
                said = f'right wherever {relation.name} = {text} ({of} of {of}): write "{text}" for {relation.name}'
                return RightWithin(relation.name, text, f"{said}, or export with bounds='narrow'")
    return None


def _explains(relation: SizeRelation, sizes: Mapping[str, int], right: bool) -> bool:
    """Whether a relation has it so that a graph is right there, or wrong. A size of 1 may be right by broadcasting."""
    return relation.holds(sizes) == right or (right and sizes[relation.name] == 1)


def related_probes(oracle: Oracle, relation: SizeRelation) -> list[Probe]:
    """Probes at sizes that have a relation, where eager takes them."""
    found = (oracle.at(sizes, must=True) for sizes in sizes_with(relation, oracle.dims))
    return list(dict.fromkeys(itertools.islice(filter(None, found), MOST_TRIED)))


_FOR_A_REPORT = 24  # sizes that eager is asked about
_FOR_A_FILE = 160
_REACH = 4  # times the example: how far a range without an end is looked at, and how wide it counts
_NAMED = 3  # wrong sizes in a message
_PROVING = 2  # multiples beside the example that have to be right


def right_within(
    oracle: Oracle, checks: Sequence[Checked], right: Callable[[Probe], bool], fixed: Collection[str]
) -> list[RightWithin]:
    """What to declare instead of the sizes at which a graph is wrong; [] where no declaration keeps them out.

    checks: what was compared. right: runs the graph at one more probe. fixed: dimensions that are static in the file.
    """
    if (related := right_relation(oracle, checks, right)) is not None:
        return [related]
    search = RightSizes(oracle, right, fixed, _FOR_A_REPORT)
    bounds = [bound for bound in search.bounds(checks) or () if bound.name not in fixed]
    if any(bound.low == bound.high for bound in bounds):  # a dimension with one size is reported as specialized
        return []
    return [RightWithin(bound.name, _declared(bound), search.sentence(bound)) for bound in bounds]


def _declared(bound: SizeBound) -> str:
    """`Dim('h', min=2)`, `14*Dim('h')`."""
    low, high = -(-bound.low // bound.multiple), bound.high and bound.high // bound.multiple
    limits = [repr(bound.name), *([f"min={low}"] if low > 1 else []), *([f"max={high}"] if high else [])]
    return (f"{bound.multiple}*" if bound.multiple > 1 else "") + f"Dim({', '.join(limits)})"


class RightSizes:
    """The search for the sizes at which one graph is right.

    oracle: answers for eager. right: runs the graph at one more probe. fixed: dimensions that keep the example's size.
    questions: how many sizes eager may be asked about, whatever was asked before.
    """

    def __init__(
        self, oracle: Oracle, right: Callable[[Probe], bool], fixed: Collection[str], questions: int = _FOR_A_FILE
    ) -> None:
        self._oracle, self._right, self._questions = oracle, right, questions
        self._example = oracle.example
        self._dims = [dim for dim in oracle.dims if dim.name not in fixed]
        self._fixed = [_only(dim) for dim in oracle.dims if dim.name in fixed]
        self._known: dict[tuple[int, ...], bool | None] = {}

    def bounds(self, checks: Sequence[Checked]) -> list[SizeBound] | None:
        """The bounds of the dimensions that need one; None where none were found at which the graph is right.

        checks: of the whole graph, from which the search starts.
        """
        checks = [check for check in checks if check.sizes]
        # Wrong at the example's own sizes: no bound would help.
        if not checks or any(not check.ok and {**self._example, **check.sizes} == self._example for check in checks):
            return None
        self._oracle.reserve(self._questions)
        for check in checks:
            self._known[self._key(check.sizes)] = check.ok
        self._ask_one_by_one([check.sizes for check in checks if not check.ok])
        return next((bounds for bounds in self._candidates() if bounds and self._holds(bounds, checks)), None)

    def _candidates(self) -> Iterator[list[SizeBound]]:
        """The bounds that each dimension needs; then, one dimension after the other, with its one size instead."""
        found = [(dim, bound) for dim in self._dims if (bound := self._bound(dim)) is not None]
        bounds = [*self._fixed, *(bound for _, bound in found)]
        yield bounds
        for dim, _ in found:  # right alone and wrong together
            bounds = [*(bound for bound in bounds if bound.name != dim.name), _only(dim)]
            yield bounds

    def edges(self, bounds: Sequence[SizeBound]) -> list[Probe]:
        """Probes at each end of each bound, at the corners, and where two dimensions meet; those that eager accepts."""
        ends = {bound.name: bound.edges(self._example[bound.name]) for bound in bounds}
        alone = [{name: size} for name, sizes in ends.items() for size in sizes]
        corners = [dict(zip(ends, corner, strict=True)) for corner in itertools.product(*ends.values())][:8]
        asked = (self._oracle.at(sizes, must=True, far=True) for sizes in (*alone, *corners, *self._squares(bounds)))
        return list(dict.fromkeys(filter(None, asked)))

    def _squares(self, bounds: Sequence[SizeBound]) -> Iterator[dict[str, int]]:
        """One size for two dimensions, where their bounds have one in common: `if h == w:` shows nowhere else."""
        limits = {dim.name: SizeBound(dim.name, dim.minimum, dim.maximum) for dim in self._oracle.dims}
        limits |= {bound.name: bound for bound in bounds}
        for one, other in itertools.combinations(limits.values(), 2):
            least = max(one.low, other.low)
            size = next((n for n in range(least, _REACH * least + 1) if one.admits(n) and other.admits(n)), None)
            if size is not None:
                yield {one.name: size, other.name: size}

    def sentence(self, bound: SizeBound) -> str:
        """`right for h in 2..64, wrong at 1, 65: declare Dim('h', min=2, max=64), or …`."""
        wrong = ", ".join(map(str, self.wrong_at(bound)))
        return f"right for {bound.words}, wrong at {wrong}: declare {_declared(bound)}, or export with bounds='narrow'"

    def wrong_at(self, bound: SizeBound) -> tuple[int, ...]:
        """Sizes outside of a bound at which the graph was found wrong, the smallest first, three at most."""
        wrong = {size for size, ok in self._sizes_of(bound.name) if ok is False and not bound.admits(size)}
        return tuple(sorted(wrong)[:_NAMED])

    def _holds(self, bounds: Sequence[SizeBound], checks: Sequence[Checked]) -> bool:
        """Whether the graph is right at what was compared inside the bounds, at their ends and at the corners."""
        inside = [check for check in checks if all(b.admits(check.sizes.get(b.name, b.low)) for b in bounds)]
        return all(check.ok for check in inside) and all(self._is_right(probe.sizes) for probe in self.edges(bounds))

    # -------------------------------------------------------------- one dimension
    def _ask_one_by_one(self, wrong: Sequence[Mapping[str, int]]) -> None:
        """Move dimensions one by one, where several were moved together and the graph is wrong."""
        for sizes in wrong:
            moved = [dim for dim in self._dims if sizes[dim.name] != dim.size]
            known = [self._known.get(self._key({dim.name: sizes[dim.name]})) for dim in moved]
            for dim in moved if len(moved) > 1 and False not in known else ():
                self._is_right({dim.name: sizes[dim.name]})

    def _bound(self, dim: DynamicDim) -> SizeBound | None:
        """The bound of one dimension, the others as in the example; None where it needs none."""
        if all(self._alone(dim).values()):
            return None
        ways = [self._range(dim, 1)]
        # The smallest step that holds is the widest choice, so larger ones are not looked at.
        ways += itertools.islice(filter(None, (self._multiple(dim, step) for step in _steps(dim.size))), 1)
        return max(ways, key=lambda bound: _width(dim, bound))

    def _range(self, dim: DynamicDim, step: int) -> SizeBound:
        """The widest range around the example, of multiples of `step`, between the sizes that are wrong."""
        wrong = [size for size, ok in self._alone(dim).items() if not ok and size % step == 0]
        below = max((size for size in wrong if size < dim.size), default=None)
        above = min((size for size in wrong if size > dim.size), default=None)
        least = -(-dim.minimum // step) * step
        low = self._edge(dim, below, step) if below is not None else least
        high = self._edge(dim, above, step) if above is not None else dim.maximum
        return SizeBound(dim.name, low, high, step)

    def _edge(self, dim: DynamicDim, wrong: int, step: int) -> int:
        """The last right size from the example towards a wrong one, by bisection over the multiples of `step`."""
        right, toward = 0, (wrong - dim.size) // step  # in steps from the example
        while abs(toward - right) > 1:
            middle = (right + toward) // 2
            if self._is_right({dim.name: dim.size + middle * step}):
                right = middle
            else:  # also where eager refuses the size: nothing is claimed there
                toward = middle
        return dim.size + right * step

    def _multiple(self, dim: DynamicDim, step: int) -> SizeBound | None:
        """The bound "multiples of `step`", if the graph is right at several of them other than the example."""
        if any(not ok and size % step == 0 and size > dim.size for size, ok in self._alone(dim).items()):
            return None
        proven = 0
        # Sizes that also are not multiples of 2 * step, which would hide that only every other one is right.
        for size in (dim.size + step, 2 * dim.size, dim.size + 3 * step, dim.size - step, step):
            right = self._is_right({dim.name: size}) if 0 < size != dim.size else None
            if right is False and size > dim.size:
                return None
            proven += bool(right)
        return self._range(dim, step) if proven >= _PROVING else None

    def _alone(self, dim: DynamicDim) -> dict[int, bool]:
        """Right or wrong by size, where this dimension alone was moved."""
        return {size: ok for size, ok in self._sizes_of(dim.name, alone=True) if ok is not None}

    def _sizes_of(self, name: str, alone: bool = False) -> Iterator[tuple[int, bool | None]]:
        for key, ok in self._known.items():
            sizes = dict(zip(self._example, key, strict=True))
            if not alone or all(sizes[other] == size for other, size in self._example.items() if other != name):
                yield sizes[name], ok

    # -------------------------------------------------------------- one size
    def _is_right(self, sizes: Mapping[str, int]) -> bool | None:
        """Whether the graph is right there; None where eager refuses the sizes."""
        key = self._key(sizes)
        if key not in self._known:
            probe = self._oracle.at(sizes, must=True, far=True)
            self._known[key] = None if probe is None else self._right(probe)
        return self._known[key]

    def _key(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(sizes.get(name, size) for name, size in self._example.items())


def _only(dim: DynamicDim) -> SizeBound:
    return SizeBound(dim.name, dim.size, dim.size)


def _width(dim: DynamicDim, bound: SizeBound) -> int:
    """How many sizes a bound admits, up to some times the example."""
    # An open end would make every such bound the widest.
    high = min(bound.high or _REACH * dim.size, _REACH * dim.size)
    return len(range(bound.low, high + 1, bound.multiple))


def _steps(size: int) -> Iterator[int]:
    """The steps of which the example's size is a multiple, the smallest first."""
    return (step for step in range(2, size) if size % step == 0)
