"""Finds sizes at which a comparison of sizes in the forward has another result than at the example.

    if h * w > 20_000: ...                h and w beyond it
    if tokens == len(self.table): ...     the size that the model was made for; behind it twice h, half w
    if mask.shape[1] > kv: ...            no size, where both are declared as one: that is noted in `SidesTaken.fixed`

How what is compared follows from h and w is not known, only its values. So guesses are tried in turn: where the example
has h = w = 224, 196 tokens of them, and 257 are wanted, h or w scaled by 257 / 196, both by its root (tokens may be an
area), and these rounded up to multiples of the model's strides.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from onnxpatch.decisions.ask import Site
from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.verification.branch_recorder import Decisions
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.size_recorder import SizeComparison

_MOST_OF_COMPARISONS = 6  # probes
_TRIES_OF_A_COMPARISON = 12  # sizes tried for one comparison
_MISSED = 2  # runs for a comparison that did not come to it, after which it is left
_QUESTIONS = 30  # for all of them; the search over sizes afterwards needs the rest
Wish = dict[str, int]
Place = tuple[str, str, int, int]


@dataclass(frozen=True, eq=False)
class _Run:
    """One run of eager, at these sizes."""

    sizes: Wish
    watched: Decisions

    @functools.cached_property
    def gaps(self) -> dict[Site, set[float]]:
        """How far the two sides of each comparison are from each other."""
        found: dict[Site, set[float]] = {}
        for one in self.watched.sizes.comparisons:
            found.setdefault(one.site, set()).add(one.size - one.other)
        return found

    def is_tied(self, one: SizeComparison) -> bool:
        """Whether an equality of other sizes holds before a comparison is come to: behind `h * w == 16`, `h == 4`."""
        before = itertools.takewhile(lambda other: other.site != one.site, self.watched.sizes.comparisons)
        return any(other.equality and other.exact and other.size == other.other != one.size for other in before)


def size_branches(oracle: Oracle, example: Decisions) -> Iterator[Probe]:
    """For each comparison of sizes that had one outcome, a probe at which it has the other one.

    The compared size may be computed deep inside the model. That it grows with an input's size is a guess; eager, run
    at the guessed size, shows whether the outcome changed. New comparisons in that run are followed as well, and what
    it asks the data at that size alone.
    """
    runs = [_Run(oracle.example, example)]
    try:
        yield from _turned(oracle, example, runs)
    finally:
        oracle.eager.sides.fixed = _fixed(runs)


def _turned(oracle: Oracle, example: Decisions, runs: list[_Run]) -> Iterator[Probe]:
    """The probes of `size_branches`. runs: grows."""
    seen, kept, asked = set(example.sizes.outcomes()), 0, 0
    # Half of what is left of the budget: the other half is for the search over sizes.
    end = (oracle.spent + oracle.budget.operations) / 2
    open_ends = [(one, runs[0]) for one in dict.fromkeys(example.sizes.comparisons)]
    for one, run in open_ends:  # grows
        base, tried = run.sizes, list[Wish]()
        exchanged = list(_exchanged(oracle, base)) if run.is_tied(one) else []
        for wish in (*exchanged, *_wishes(one, oracle, base)):
            if kept == _MOST_OF_COMPARISONS or asked == _QUESTIONS or oracle.spent > end:
                return
            if _is_settled(one, seen, [run for run in runs if run.sizes in tried], runs, bool(exchanged)):
                break
            tried += [wish] if wish not in exchanged else []
            probe, other = _followed(oracle, wish, runs)
            asked += other is not None
            if probe is not None and other is not None and not other.watched.sizes.outcomes() <= seen:
                open_ends += [(new, other) for new in other.watched.sizes.beyond(seen)]
                seen |= other.watched.sizes.outcomes()
                kept += 1
                yield probe


def _followed(oracle: Oracle, wish: Wish, runs: list[_Run]) -> tuple[Probe | None, _Run | None]:
    """Run eager at these sizes and add the run; (None, None) where it was run there before, or refuses them."""
    probe = oracle.at(wish, far=True) if all(wish != run.sizes for run in runs) else None
    watched = oracle.eager.decisions(probe.values, sizes=True, answered=True) if probe else None
    if watched is None:
        return None, None
    runs.append(_Run(wish, watched))
    return probe, runs[-1]


def _exchanged(oracle: Oracle, base: Wish) -> Iterator[Wish]:
    """Sizes of which the product is as before, then each twice as large alone."""
    for a, b in itertools.permutations(oracle.inner[:3], 2):
        times = [n for n in (2, 3, 5) if base[b] % n == 0]
        yield from ({**base, a: n * base[a], b: base[b] // n} for n in times[:1])
    yield from ({**base, name: 2 * size} for name, size in base.items())


def _fixed(runs: Sequence[_Run]) -> frozenset[Place]:
    """The places of comparisons that no size turns, as far as sizes alone decide: where data gives numbers, none."""
    if not all(isinstance(answer, bool) for run in runs for _, answer in run.watched.sides):
        return frozenset()
    turned = dict[Place, bool]()
    for run, one in dict.fromkeys((each, one) for each in runs for one in each.watched.sizes.comparisons):
        place = (one.site.file, one.site.function, one.site.line, one.site.columns[0])
        # Where all sizes are tied it decides nothing what the other side is computed of.
        fixed = (one.exact and _is_fixed(one, runs)) or (run.is_tied(one) and _is_fixed(one, runs, True))
        turned[place] = turned.get(place, False) or not fixed
    return frozenset(place for place in turned if not turned[place])


def _is_settled(
    one: SizeComparison, seen: Collection[object], own: Sequence[_Run], runs: Sequence[_Run], tied: bool
) -> bool:
    """Whether a comparison had both outcomes, or no size seems to turn it: its own runs do not come to it, or in all
    runs its sides stayed as far apart while each dimension became twice as large."""
    # Beyond the first step, further steps are near each other: the search over sizes meets them.
    if (one.first_step and one.answer) or one.opposite in seen:
        return True
    return sum(one.site not in run.gaps for run in own) >= _MISSED or _is_fixed(one, runs, tied)


def _is_fixed(one: SizeComparison, runs: Sequence[_Run], tied: bool = False) -> bool:
    """Whether the two sides of a comparison were as far apart in every run, with each dimension twice as large.

    tied: a dimension may also have one size alone at which the comparison is come to, though it was moved by itself.
    """
    met = [run for run in runs if one.site in run.gaps]
    if any(run.gaps[one.site] != {one.size - one.other} for run in met):
        return False
    ends = {name: (min(at := [run.sizes[name] for run in met]), max(at)) for name in runs[0].sizes}
    left = {name for name, (least, most) in ends.items() if most < 2 * least}
    missed = (run.sizes for run in runs if one.site not in run.gaps)
    moved = [{name for name in left if sizes[name] not in ends[name]} for sizes in missed] if tied else []
    return all(ends[name][0] == ends[name][1] and {name} in moved for name in left)


def _wishes(one: SizeComparison, oracle: Oracle, base: Wish) -> Iterator[Wish]:
    """Sizes at which the comparison may have the other outcome, likely ones first, each once."""
    asked = [base]
    for guess in _guesses(one, oracle, base):
        wish = {**base, **guess}
        if wish not in asked and min(wish.values()) > 0:
            asked.append(wish)
            yield wish
        if len(asked) > _TRIES_OF_A_COMPARISON:
            return


def _guesses(one: SizeComparison, oracle: Oracle, base: Wish) -> Iterator[Wish]:
    wanted, inner, hints = list(_wanted(one)), oracle.inner, oracle.mentioned
    theirs = [name for name, size in base.items() if size == one.size] or _by_kinship(one, oracle.dims, base)
    if one.equality and not one.step:  # h == w: either may move
        yield from ({name: int(one.other)} for name in theirs)
        yield from ({name: one.size} for name, size in base.items() if size == one.other)
        # What is as many as a table has is so at the size that the model was made for.
        yield from (dict.fromkeys(inner, size) for size in hints.native[:2] if one.size != one.other)
    for value in wanted:
        yield from _all_to(value, 1, one, theirs, theirs, base)
    for value in wanted[:2]:
        for step in dict.fromkeys([*hints.steps[:2], 2, 8, 32]):
            yield from _all_to(value, step, one, theirs, inner, base)
        share = math.sqrt(max(0, value) / max(1, one.size))  # if the compared size is an area
        yield {name: math.ceil(base[name] * share) for name in inner}


def _all_to(
    value: int, step: int, one: SizeComparison, alone: Sequence[str], together: Sequence[str], base: Wish
) -> Iterator[Wish]:
    yield from ({name: _scaled(base[name], value, one, step)} for name in alone)
    yield {name: _scaled(base[name], value, one, step) for name in together}


def _by_kinship(one: SizeComparison, dims: Sequence[DynamicDim], base: Wish) -> list[str]:
    """Names of dimensions: first those that divide the compared size or are multiples of it, last the batch."""

    def stranger(dim: DynamicDim) -> tuple[bool, bool]:
        small, large = sorted((max(1, base[dim.name]), max(1, one.size)))
        return large % small != 0, all(axis == 0 for _, axis, _ in dim.places)

    return [dim.name for dim in sorted(dims, key=stranger)]


def _wanted(one: SizeComparison) -> Iterator[int]:
    """Values of the compared size with the other outcome, the nearest first."""
    size, other = one.size, one.other
    if one.step:
        rest = (int(other) - size) % one.step
        yield from (size + rest, size + rest - one.step, size + rest + one.step) if rest else (size + 1, size - 1)
    elif one.equality:
        yield from (int(other),) if size != other else (size + 1, size - 1, 2 * size)
    elif size <= other:
        yield from (math.floor(other) + 1, math.ceil(other), 2 * math.ceil(other))
    else:
        yield from (math.ceil(other) - 1, math.floor(other), math.floor(other) // 2)


def _scaled(size: int, value: int, one: SizeComparison, step: int) -> int:
    """The input's size at which the compared size is about `value`, rounded up to a multiple of `step`."""
    value = max(0, value)
    exact = value if size == one.size else math.ceil(size * value / max(1, one.size))
    return -(-exact // step) * step
