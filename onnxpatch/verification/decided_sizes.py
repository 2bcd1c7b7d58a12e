"""Proposes sizes to compare at, from what a forward does with its sizes and from the numbers in its code.

    if h * w > 20_000: ...                compared: h and w beyond it                       `compared_sizes`
    int(n * 0.29)                         100 * 0.29 is 28.999...: 28, and 29 in float32    a size of those
    F.interpolate(x, size=(50, 50))       nearest neighbours of 45 are others in ONNX       a size of those
    mask.sum() > 90                       a number from data that is a size, too            91
    if len(x) > 128: ...                  nothing that is watched, but 128 is in the code   129
    math.isclose(w / h, 16 / 9)           so is the ratio                                   16 and 9

One maker a row.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from onnxpatch.formulas.interpolation import runtime_agrees
from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.verification.branch_recorder import Decisions
from onnxpatch.verification.compared_sizes import size_branches
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Maker, Probe

Wish = dict[str, int]
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
    for serves, makes in MAKERS.values() if oracle.dims else ():
        if serves(seen):
            yield from makes(seen)


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


MAKERS: dict[str, Maker[_Seen, Probe]] = {
    "fractions of sizes": (lambda seen: seen.example.sizes.products, lambda seen: fractions_of_sizes(*seen)),
    "comparisons of sizes": (lambda seen: seen.example.sizes.comparisons, lambda seen: size_branches(*seen)),
    "nearest neighbours": (lambda seen: seen.example.sizes.resized, lambda seen: resized_sizes(*seen)),
    "numbers in the code": (lambda seen: True, lambda seen: mentioned_sizes(*seen)),
}
