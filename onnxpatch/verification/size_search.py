"""Searches other sizes that eager accepts: 1, 2, odd, larger, not square, those that the model mentions.

A model may accept only multiples of 14, square images, or two sizes that change together. What it accepts is found by
running it, so that every model gets probes that it can run.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence

from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Probe

Wish = dict[str, int]


def size_probes(oracle: Oracle) -> Iterator[Probe]:
    """Probes at other sizes, the most informative first. Each is run when it is requested.

    First all dimensions larger, all as small as possible, all a little smaller, all 2; then each alone and far larger.
    """
    found = [_Sizes(oracle, dim) for dim in oracle.dims]
    free = [one for one in found if one.up or not one.stuck]
    stuck = [one.dim for one in found if not one.up and one.stuck]
    yield from itertools.chain(_joint(oracle, free, "up"), _joint(oracle, free, "one"), _coupled(oracle, stuck))
    yield from itertools.chain(_joint(oracle, free, "below"), _joint(oracle, free, "two"))
    yield from filter(None, (one.large for one in free))
    # Of a single dimension, "alone" is what "all together" was.
    alone = [one for one in free if len(free) > 1]
    singles = (probe for role in ("one", "up", "below", "two") for one in alone if (probe := getattr(one, role)))
    yield from singles
    yield from _alternating(*(one.others() for one in free))


class _Sizes:
    """Sizes of one dimension that eager accepts, the others as in the example. Each is run once, when requested."""

    def __init__(self, oracle: Oracle, dim: DynamicDim) -> None:
        self.oracle, self.dim = oracle, dim
        self.step = 1

    @functools.cached_property
    def up(self) -> Probe | None:
        """A larger size. Its distance from the example is the step for further sizes."""
        n, hints = self.dim.size, self.oracle.mentioned
        # Divisors of the example may be strides, since the example is a multiple of them.
        steps = {1, 2, 4, 8, 16, 32, n, *hints.steps, *(d for d in range(3, min(n, 65)) if n % d == 0)}
        # The smallest first: the first size that eager accepts tells the stride that it wants.
        for step in sorted(steps)[:12]:
            probe = self._at(n + step)
            if probe:
                self.step = step
                return probe
        return None

    @functools.cached_property
    def one(self) -> Probe | None:
        return self._at(1, must=True)

    @functools.cached_property
    def two(self) -> Probe | None:
        return self._at(2, must=self.dim.size > 2)

    @functools.cached_property
    def below(self) -> Probe | None:
        """A smaller size: one step less, or half of it if the budget is used up."""
        step = self.step if self.up else 1
        return self._at(self.dim.size - step) or _smaller(self.oracle, [self.dim])

    @functools.cached_property
    def large(self) -> Probe | None:
        n = self.dim.size
        return self._at(3 * n + self.step if self.step == 1 else n + 2 * self.step)

    def others(self) -> Iterator[Probe]:
        """The sizes that the model mentions, sizes beyond each of its constants, multiples of the example."""
        hints, n = self.oracle.mentioned, self.dim.size
        near = [v for v in hints.native if n // 8 <= v <= 4 * n]
        compared = [v for v in hints.thresholds if v <= 4 * n + 8]
        past = (c + k for c in compared[:3] for k in (1, 0))
        wanted = dict.fromkeys([*near[:2], n - self.step, *past, n // 2, 3, 2 * n, *near[2:4], n + 3 * self.step])
        yield from filter(None, map(self._at, wanted))

    @functools.cached_property
    def stuck(self) -> bool:
        """Whether it changes only together with another dimension: alone, only size 1 is accepted, by broadcasting."""
        accepted = itertools.chain(filter(None, (self.below, self.large, self.two)), self.others())
        if any(probe.sizes[self.dim.name] != 1 for probe in accepted):
            return False
        return not self.one or self.dim.name in self.oracle.refused_alone

    def _at(self, size: int, must: bool = False) -> Probe | None:
        return self.oracle.at({self.dim.name: size}, must=must) if size > 0 and size != self.dim.size else None


def _smaller(oracle: Oracle, dims: Sequence[DynamicDim]) -> Probe | None:
    """A probe at a smaller size, for when the budget has no room for a larger one: every dimension is probed."""
    if not oracle.left_out:
        return None
    steps = dict.fromkeys([*oracle.mentioned.steps[:2], 1, 2, 4, 8, 16])
    # An odd size first: half of a native size is a multiple of what the model pads to, and hides a missing crop.
    halves = [{d.name: _odd_half(d.size) for d in dims}, {d.name: d.size // 2 for d in dims}]
    wishes = [*halves, *({d.name: d.size - k for d in dims} for k in steps)]
    wishes += [{d.name: 1 for d in dims}, *({d.name: d.size + k for d in dims} for k in steps)]
    example = {d.name: d.size for d in dims}
    possible = [w for w in wishes if min(w.values()) > 0 and w != example][: oracle.budget.tries]
    return next(filter(None, (oracle.at(wish, must=True) for wish in possible)), None)


def _odd_half(size: int) -> int:
    """The largest odd number below half of a size; half of it if that is only 1."""
    odd = (size // 2 - 1) | 1
    return odd if odd > 2 else size // 2


def _joint(oracle: Oracle, free: Sequence[_Sizes], role: str) -> Iterator[Probe]:
    """A probe with every dimension at its size of one role ("up", "below"), or at another size if it has none."""
    known: Mapping[str, Probe | None] = {one.dim.name: getattr(one, role) for one in free}
    if not any(known.values()):
        return
    other = {one.dim.name: known[one.dim.name] or one.up or one.below or one.one or one.two for one in free}
    probe = oracle.at({name: probe.sizes[name] for name, probe in other.items() if probe}, must=role == "one")
    if probe:
        yield probe


def _coupled(oracle: Oracle, stuck: Sequence[DynamicDim]) -> Iterator[Probe]:
    """Sizes of dimensions that change only together: equal, proportional, all."""
    for group in _groups(oracle.dims, stuck):
        kept = 0
        for factor in (1, 2, 4, 8, 16, 32, *oracle.mentioned.steps):
            probe = oracle.at({dim.name: dim.size + share * factor for dim, share in group})
            if probe:
                yield probe
                kept += 1
            # Two larger sizes are enough to show that the dimensions may change together.
            if kept == 2:
                break
        less = {dim.name: dim.size - share for dim, share in group}
        smaller = oracle.at(less) if kept else _smaller(oracle, [dim for dim, _ in group])
        if smaller:
            yield smaller


def _groups(dims: Sequence[DynamicDim], stuck: Sequence[DynamicDim]) -> Iterator[list[tuple[DynamicDim, int]]]:
    """Groups of (dimension, its multiple of a common step)."""
    for dim in stuck:
        same = [(other, 1) for other in dims if other.size == dim.size]
        if len(same) > 1 and dim is next(d for d in stuck if d.size == dim.size):
            yield same
    for dim in stuck:
        for other in dims:
            small, large = sorted((dim, other), key=lambda d: d.size)
            if 0 < small.size < large.size and large.size % small.size == 0:
                yield [(small, 1), (large, large.size // small.size)]
    if len(dims) > 1 and stuck:
        yield [(dim, dim.size) for dim in dims]


def _alternating(*sources: Iterator[Probe]) -> Iterator[Probe]:
    for turn in itertools.zip_longest(*sources):
        yield from filter(None, turn)
