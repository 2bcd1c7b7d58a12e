"""Sizes that follow from what a forward was seen to do with sizes, and from the numbers in its code. One maker a row:

    if h * w > 20_000: ...                compared: h and w beyond it                       `size_branches`
    int(n * 0.29)                         100 * 0.29 is 28.999...: 28, and 29 in float32    a size of those
    F.interpolate(x, size=(50, 50))       nearest neighbours of 45 are others in ONNX       a size of those
    mask.sum() > 90                       a number from data that is a size, too            91
    if len(x) > 128: ...                  nothing that is watched, but 128 is in the code   129
    math.isclose(w / h, 16 / 9)           so is the ratio                                   16 and 9

How what is compared follows from h and w is not known, only its values. So guesses are tried in turn: where the example
has h = w = 224, 196 tokens of them, and 257 are wanted, h or w scaled by 257 / 196, both by its root (tokens may be an
area), and these rounded up to multiples of the model's strides.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from onnxpatch.decisions.ask import Site
from onnxpatch.formulas.interpolation import runtime_agrees
from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.verification.branch_recorder import Decisions
from onnxpatch.verification.mentioned import Mentioned
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Maker, Probe
from onnxpatch.verification.size_recorder import SizeComparison, SizeWatch

_MOST_OF_COMPARISONS = 6  # probes
_TRIES_OF_A_COMPARISON = 12  # sizes tried for one comparison
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
        for wish in itertools.islice(_wishes(one, oracle.dims, base, oracle.mentioned), _TRIES_OF_A_COMPARISON):
            if kept == _MOST_OF_COMPARISONS or asked == _QUESTIONS or oracle.spent > end:
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


_MOST, _KEYS = 3, 6  # numbers, keys
_PAIRS = 2  # products, resized axes
_LARGEST = 1 << 16
_ROUNDED, _RESIZED = 1024, 512  # the largest sizes at which rounding is looked at
_NEAR = 1e-6  # relative: what a graph may add before it rounds down
_TRIES = 4  # sizes tried for one resized axis


class _Seen(NamedTuple):
    oracle: Oracle
    example: Decisions


def decided_sizes(oracle: Oracle, example: Decisions) -> Iterator[Probe]:
    """The probes of every maker, each run when it is requested. example: what eager did at the example."""
    seen = _Seen(oracle, example)
    for maker in MAKERS if oracle.dims else ():
        if maker.serves(seen):
            yield from maker.makes(seen)


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
    beyond = [n for n in map(_beyond, _unrecorded(oracle, example)) if largest < n <= _LARGEST]
    most = 2 * _MOST if example.quick else _MOST
    # The usual search reaches about three times the example by itself.
    far = [n for n in beyond if n > 3 * largest][:most]
    near = [n for n in beyond if n not in far][:most]
    groups = list(_groups(oracle))
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


def _at_key(names: list[str], key: tuple[int, ...]) -> Wish:
    if not all(1 <= n <= _LARGEST for n in key) or len(key) not in (1, len(names)):
        return {}
    return dict(zip(names, key if len(key) > 1 else key * len(names), strict=True))


def _groups(oracle: Oracle) -> Iterator[list[str]]:
    """The dimensions inside, such as height and width; those outside, such as the batch."""
    inner = [dim.name for dim in oracle.dims if any(axis for _, axis, _ in dim.places)]
    yield from filter(None, (inner, [dim.name for dim in oracle.dims if dim.name not in inner]))


def _beyond(constant: float) -> int:
    return math.floor(constant) + 1


MAKERS: tuple[Maker[_Seen, Probe], ...] = (
    Maker("fractions of sizes", lambda seen: seen.example.sizes.products, lambda seen: fractions_of_sizes(*seen)),
    Maker("comparisons of sizes", lambda seen: seen.example.sizes.comparisons, lambda seen: size_branches(*seen)),
    Maker("nearest neighbours", lambda seen: seen.example.sizes.resized, lambda seen: resized_sizes(*seen)),
    Maker("numbers in the code", lambda seen: True, lambda seen: mentioned_sizes(*seen)),
)
