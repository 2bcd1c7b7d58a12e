"""Searches sizes to compare at: those that the forward decides something by, then any others that eager accepts.

    if h * w > 20_000: ...                compared: h and w beyond it                       `compared_sizes`
    int(n * 0.29)                         100 * 0.29 is 28.999...: 28, and 29 in float32    a size of those
    F.interpolate(x, size=(50, 50))       nearest neighbours of 45 are others in ONNX       a size of those
    mask.sum() > 90                       a number from data that is a size, too            91
    if len(x) > 128: ...                  nothing that is watched, but 128 is in the code   129
    math.isclose(w / h, 16 / 9)           so is the ratio                                   16 and 9

One maker a row. Any others are 1, 2, odd, larger, not square, those that the model mentions. A model may accept only
multiples of 14, square images, or two sizes that change together. What it accepts is found by running it, so that every
model gets probes that it can run.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from onnxpatch.formulas.interpolation import runtime_agrees
from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.verification.branch_recorder import Decisions
from onnxpatch.verification.compared_sizes import size_branches
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Probe

Wish = dict[str, int]
_MOST, _KEYS = 3, 6  # numbers, keys
_PAIRS = 2  # products, resized axes
_LARGEST = 1 << 16
_ROUNDED, _RESIZED = 1024, 512  # the largest sizes at which rounding is looked at
_NEAR = 1e-6  # relative: what a graph may add before it rounds down
_TRIES = 4  # sizes tried for one resized axis
_TOKENS = 5  # at most, beside the patches of a square image


def decided_sizes(oracle: Oracle, example: Decisions) -> Iterator[Probe]:
    """The probes of every maker, each run when it is requested. example: what eager did at the example."""
    for makes in MAKERS.values() if oracle.dims else ():
        yield from makes(oracle, example)


# ------------------------------------------------------------------ rounding
def fractions_of_sizes(oracle: Oracle, example: Decisions) -> Iterator[Probe]:
    """Probes where float32 rounds a fraction of a size otherwise than Python, one for each way of rounding."""
    for size, fraction, divided in list(example.sizes.products)[:_PAIRS]:
        # A size that eager multiplied may be computed from an input's: then the input's is scaled along with it.
        theirs = [dim for dim in oracle.dims if dim.size == size] or oracle.dims
        for n in dict.fromkeys(distinguishing_sizes(fraction, divided)):
            wishes = ({dim.name: n if dim.size == size else n * dim.size // max(1, size)} for dim in theirs)
            yield from itertools.islice(filter(None, (oracle.at(wish, far=True) for wish in wishes)), 1)


def distinguishing_sizes(fraction: float, divided: bool = False) -> Iterator[int]:
    """For each way of rounding, the smallest size at which float32 and float64 differ: down, up, nearest, and down
    after a little was added."""
    exact = np.arange(1, _ROUNDED + 1, dtype=np.float64)
    if not math.isfinite(fraction) or not fraction:
        return
    wide = exact / fraction if divided else exact * fraction
    narrow = exact.astype(np.float32)
    narrow = (narrow / np.float32(fraction) if divided else narrow * np.float32(fraction)).astype(np.float64)
    if not np.isfinite(wide).all():
        return
    ways: tuple[Callable[[np.ndarray], np.ndarray], ...] = (np.floor, np.ceil, np.rint)
    for way in ways:
        # A graph may round to float32, or add or take away a little before it rounds: each is told apart.
        for other in (narrow, wide + np.abs(wide) * _NEAR, wide - np.abs(wide) * _NEAR):
            (differs,) = np.nonzero(way(wide) != way(other))
            if differs.size:
                yield int(exact[differs[0]])
                break


def resized_sizes(oracle: Oracle, example: Decisions) -> Iterator[Probe]:
    """A probe where ONNX picks other nearest neighbours than PyTorch, for the first axes that eager resized.

    `onnxpatch.formulas.interpolation` says why: it is one pair of sizes in thirty. How the two sizes follow from the
    inputs' is not known. Tried is that one of them does, and the other stays.
    """
    for before, after in list(example.sizes.resized)[:_PAIRS]:
        wishes = (wish for dim in oracle.dims for wish in _neighbours(dim, before, after))
        probes = (oracle.at(wish, far=True) for wish in itertools.islice(wishes, _TRIES))
        yield from itertools.islice(filter(None, probes), 1)


def _neighbours(dim: DynamicDim, before: int, after: int) -> Iterator[Wish]:
    """The smallest sizes of `dim` for which the neighbours differ: as the input's size, and as the output's."""
    if before and dim.size % before == 0:
        step = dim.size // before
        yield from ({dim.name: n * step} for n in range(2, _RESIZED) if not runtime_agrees(n, after))
    elif after and dim.size % after == 0:
        step = dim.size // after
        yield from ({dim.name: n * step} for n in range(2, _RESIZED) if not runtime_agrees(before, n))


# ------------------------------------------------------------------ numbers in the code
def mentioned_sizes(oracle: Oracle, example: Decisions) -> Iterator[Probe]:
    """Probes beyond the numbers in the code, and at the keys by which the model looks something up."""
    largest = max(dim.size for dim in oracle.dims)
    beyond = [n for one in _unrecorded(oracle, example) if largest < (n := math.floor(one) + 1) <= _LARGEST]
    most = 2 * _MOST if example.quick else _MOST
    # The usual search reaches about three times the example by itself.
    far = [n for n in beyond if n > 3 * largest][:most]
    near = [n for n in beyond if n not in far][:most]
    groups = _inner_and_outer(oracle)
    yield from _at_each(oracle, (dict.fromkeys(names, size) for size in far for names in groups))
    guesses = [dict.fromkeys(names, size) for size in near for names in groups]
    guesses += (wish for key in oracle.mentioned.keys[:_KEYS] for names in groups if (wish := _at_key(names, key)))
    # The usual search needs the other half of the budget.
    spare = itertools.takewhile(lambda _: not oracle.used_up and not oracle.half_spent, guesses)
    yield from _at_each(oracle, spare)


def _at_each(oracle: Oracle, wishes: Iterable[Wish]) -> Iterator[Probe]:
    different = (wish for wish in wishes if any(wish[name] != oracle.example[name] for name in wish))
    yield from filter(None, (oracle.at(wish, far=True) for wish in different))


def _unrecorded(oracle: Oracle, example: Decisions) -> list[float]:
    """The numbers in the code but those that recorded comparisons had, which have their own probes."""
    recorded = {one.other for one in example.sizes.comparisons} | set(example.equals)
    recorded |= {value + k for value in example.values for k in (-1, 0, 1)}
    named = oracle.mentioned
    # What only stands in the code is one of many guesses.
    return [n for n in (*named.asked, *(named.others if example.quick else ())) if n not in recorded]


def _inner_and_outer(oracle: Oracle) -> list[list[str]]:
    """The dimensions inside, such as height and width; those outside, such as the batch."""
    outer = [name for name in oracle.example if name not in oracle.inner]
    return [names for names in (oracle.inner, outer) if names]


def _at_key(names: list[str], key: tuple[int, ...]) -> Wish:
    if not all(1 <= n <= _LARGEST for n in key) or len(key) not in (1, len(names)):
        return {}
    return dict(zip(names, key if len(key) > 1 else key * len(names), strict=True))


MAKERS: dict[str, Callable[[Oracle, Decisions], Iterator[Probe]]] = {
    "fractions of sizes": fractions_of_sizes,
    "comparisons of sizes": size_branches,
    "nearest neighbours": resized_sizes,
    "numbers in the code": mentioned_sizes,
}


# ------------------------------------------------------------------ any size


def size_probes(oracle: Oracle) -> Iterator[Probe]:
    """Probes at other sizes, the most informative first. Each is run when it is requested.

    First all dimensions larger, all as small as possible, all a little smaller, all 2, all far larger or half; then
    each alone and far larger.
    """
    found = [_Sizes(oracle, dim) for dim in oracle.dims]
    free = [one for one in found if one.up or not one.stuck]
    stuck = [one.dim for one in found if not one.up and one.stuck]
    yield from itertools.chain(_joint(oracle, free, "up"), _joint(oracle, free, "one"), _coupled(oracle, stuck))
    yield from itertools.chain(_joint(oracle, free, "below"), _joint(oracle, free, "two"))
    # The shorter side of an image, say, has another value only where both change.
    together = free if len(free) > 1 else []
    yield from list(_joint(oracle, together, "large")) or _joint(oracle, together, "half")
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
        if 0 < n - math.isqrt(n) ** 2 <= _TOKENS:  # 17 to 26: a class token and 5 x 5 patches in place of 4 x 4
            steps.add(self._to_square)
        # The smallest first: the first size that eager accepts tells the stride that it wants.
        for step in sorted(steps)[:12]:
            # Three times the example before twice it: 8 rows are whole windows of 4, with no padding.
            probe = self._at(3 * n, must=self.oracle.affords(3)) if step == n > 8 else None
            if probe := probe or self._at(n + step):
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

    @functools.cached_property
    def half(self) -> Probe | None:
        n = self.dim.size
        return self._at(n - n // 2 // self.step * self.step)

    def others(self) -> Iterator[Probe]:
        """The sizes that the model mentions, sizes beyond each of its constants, multiples of the example."""
        hints, n = self.oracle.mentioned, self.dim.size
        near = [v for v in hints.native if n // 8 <= v <= 4 * n]
        compared = [v for v in hints.thresholds if v <= 4 * n + 8]
        past = (c + k for c in compared[:3] for k in (1, 0))
        wanted = [*near[:2], n - self.step, *past, n // 2, 3, 2 * n, *near[2:4], n + 3 * self.step]
        wanted += [n - self.step + 2] if self.step == self._to_square else []  # the square before
        yield from filter(None, map(self._at, dict.fromkeys(wanted)))

    @functools.cached_property
    def stuck(self) -> bool:
        """Whether it changes only together with another dimension: alone, only size 1 is accepted, by broadcasting."""
        accepted = itertools.chain(filter(None, (self.below, self.large, self.two)), self.others())
        if any(probe.sizes[self.dim.name] != 1 for probe in accepted):
            return False
        return not self.one or self.dim.name in self.oracle.refused_alone

    @property
    def _to_square(self) -> int:
        """How far the next square is behind the one that the size goes beyond."""
        return 2 * math.isqrt(self.dim.size) + 1

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
