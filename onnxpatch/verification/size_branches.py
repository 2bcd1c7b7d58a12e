"""Finds sizes at which a forward takes another branch, from the comparisons of sizes that it made.

    tokens = (h // 16) * (w // 16)         the example: h = w = 224, so tokens = 196
    if tokens > 256: ...                   recorded: 196 > 256, False. Wanted: 257 tokens or more

How tokens follow from h and w is not known, only their values. So guesses are tried in turn: h or w scaled by
257 / 196, both by its root (tokens may be an area), and these rounded up to multiples of the model's strides.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence

from onnxpatch.decisions.ask import Site
from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.verification.branch_recorder import Decisions
from onnxpatch.verification.mentioned import Mentioned
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.size_recorder import SizeComparison, SizeWatch

_MOST = 6  # probes
_TRIES = 12  # sizes tried for one comparison
_MISSED = 2  # runs for a comparison that did not come to it, after which it is left
_QUESTIONS = 30  # for all of them; the search over sizes afterwards needs the rest
Wish = dict[str, int]
Place = tuple[str, str, int, int]
Runs = Sequence[tuple[Wish, dict[Site, set[float]]]]  # sizes, and how far the two sides of each comparison are apart


def size_branches(oracle: Oracle, example: Decisions) -> Iterator[Probe]:
    """For each comparison of sizes that had one outcome, a probe at which it has the other one.

    The compared size may be computed deep inside the model. That it grows with an input's size is a guess; eager, run
    at the guessed size, shows whether the outcome changed. New comparisons in that run are followed as well.
    """
    sizes = {dim.name: dim.size for dim in oracle.dims}
    seen, kept, asked = set(example.sizes.outcomes()), 0, 0
    runs = [(sizes, _gaps(example.sizes))]
    # Half of what is left of the budget: the other half is for the search over sizes.
    end = (oracle.spent + oracle.budget.operations) / 2
    open_ends = [(one, sizes) for one in dict.fromkeys(example.sizes.comparisons)]
    for one, base in open_ends:  # grows
        begun = len(runs)
        for wish in itertools.islice(_wishes(one, oracle.dims, base, oracle.mentioned), _TRIES):
            if kept == _MOST or asked == _QUESTIONS or oracle.spent > end:
                return
            if _is_settled(one, seen, runs[begun:], runs):
                break
            asked += 1
            probe, watched = _watched(oracle, wish)
            if probe is None or watched is None:
                continue
            runs.append((wish, _gaps(watched.sizes)))
            oracle.eager.sides.fixed = _fixed(watched, runs, oracle.eager.sides.fixed)
            if not watched.sizes.outcomes() <= seen:
                open_ends += [(new, probe.sizes) for new in watched.sizes.beyond(seen)]
                seen |= watched.sizes.outcomes()
                kept += 1
                yield probe


def _watched(oracle: Oracle, wish: Wish) -> tuple[Probe | None, Decisions | None]:
    probe = oracle.at(wish, far=True)
    return probe, oracle.eager.decisions(probe.values, sizes=True, answered=True) if probe else None


def _gaps(watched: SizeWatch) -> dict[Site, set[float]]:
    """How far the two sides of each comparison are from each other."""
    found: dict[Site, set[float]] = {}
    for one in watched.comparisons:
        found.setdefault(one.site, set()).add(one.size - one.other)
    return found


def _fixed(watched: Decisions, runs: Runs, before: frozenset[Place]) -> frozenset[Place]:
    """The places of comparisons that no size turns, as far as sizes alone decide: where data gives numbers, none."""
    if not all(isinstance(answer, bool) for _, answer in watched.sides):
        return frozenset()
    turned = dict[Place, bool]()
    for one in watched.sizes.comparisons:
        place = (one.site.file, one.site.function, one.site.line, one.site.columns[0])
        turned[place] = turned.get(place, False) or not (one.exact and _is_fixed(one, runs))
    return (before - turned.keys()) | {place for place in turned if not turned[place]}


def _is_settled(one: SizeComparison, seen: Collection[object], own: Runs, runs: Runs) -> bool:
    """Whether a comparison had both outcomes, or no size seems to turn it: its own runs do not come to it, or in all
    runs its sides stayed as far apart while each dimension became twice as large."""
    # Beyond the first step, further steps are near each other: the search over sizes meets them.
    if (one.first_step and one.answer) or (one.site, not one.answer) in seen:
        return True
    return sum(one.site not in gaps for _, gaps in own) >= _MISSED or _is_fixed(one, runs)


def _is_fixed(one: SizeComparison, runs: Runs) -> bool:
    met = [(sizes.values(), gaps[one.site]) for sizes, gaps in runs if one.site in gaps]
    grown = all(max(sizes) >= 2 * min(sizes) for sizes in zip(*(sizes for sizes, _ in met), strict=True))
    return grown and all(gaps == {one.size - one.other} for _, gaps in met)


def _wishes(one: SizeComparison, dims: Sequence[DynamicDim], base: Wish, hints: Mentioned) -> Iterator[Wish]:
    """Sizes at which the comparison may have the other outcome, likely ones first, each once."""
    asked = [base]
    for guess in _guesses(one, dims, base, hints):
        wish = {**base, **guess}
        if wish not in asked and min(wish.values()) > 0:
            asked.append(wish)
            yield wish


def _guesses(one: SizeComparison, dims: Sequence[DynamicDim], base: Wish, hints: Mentioned) -> Iterator[Wish]:
    wanted, inner = list(_wanted(one)), [dim.name for dim in dims if any(axis for _, axis, _ in dim.places)]
    theirs = [dim.name for dim in dims if base[dim.name] == one.size] or _by_kinship(one, dims, base)
    if one.equality and not one.step:  # h == w: either may move
        yield from ({name: int(one.other)} for name in theirs)
        yield from ({name: one.size} for name, size in base.items() if size == one.other)
    for value in wanted:
        yield from _all_to(value, 1, one, theirs, theirs, base)
    for value in wanted[:2]:
        for step in _steps(hints):
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


def _steps(hints: Mentioned) -> Iterable[int]:
    return dict.fromkeys([*hints.steps[:2], 2, 8, 32])
