"""Finds sizes beyond the numbers that a model's code compares with, where no watched size or number shows it.

if int(x.shape[0]) > 512: ...      int(), len() and functions of math return plain numbers
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from onnxpatch.verification.branch_recorder import Decisions
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Probe

_MOST, _KEYS = 3, 6  # constants, keys
_LARGEST = 1 << 16
_MOST_TIMES = 8


def beyond_constants(oracle: Oracle, example: Decisions) -> Iterator[Probe]:
    """Probes at sizes beyond such constants: those beyond the example's, all dimensions inside together."""
    largest = max((dim.size for dim in oracle.dims), default=0)
    asked = oracle.hints.asked
    # What only stands in the code is one of many guesses.
    named = (*asked.numbers, *asked.others) if example.quick else asked.numbers
    found = [c for c in named if c not in _recorded(example)]
    beyond = [n for n in map(_beyond, found) if largest < n <= _LARGEST]
    far = [n for n in beyond if n > 3 * largest] + [n for n in map(_power, found) if n > 3 * largest]
    near = [n for n in beyond if n not in far]
    most = 2 * _MOST if example.quick else _MOST
    for size in (*far[:most], *near[:most]):
        # The usual search reaches about three times the example by itself, and needs the other half.
        if size in near and oracle.half_spent:
            return
        wishes = (dict.fromkeys(names, size) for names in _groups(oracle))
        yield from filter(None, (oracle.at(wish, far=True) for wish in wishes))


def in_proportion(oracle: Oracle, example: Decisions) -> Iterator[Probe]:
    """Probes at which one dimension is as often another one as the code says: `len(x) // len(y) == 3`."""
    asked = oracle.hints.asked
    times = [int(c) for c in (*asked.numbers, *asked.others) if c == int(c) and 2 <= c <= _MOST_TIMES]
    pairs = [(a, b) for a, b in itertools.permutations(oracle.dims, 2) if a.places[0][0] != b.places[0][0]]
    wishes = ({a.name: k * b.size} for k, (a, b) in itertools.product(times[:2], pairs[:2]) if k * b.size != a.size)
    yield from filter(None, map(oracle.at, wishes)) if example.quick else ()


def beyond_counts(oracle: Oracle, example: Decisions) -> Iterator[Probe]:
    """Probes at which a number that is a size of the example passes what it is compared with: `mask.sum() > 90`."""
    pairs = [(a, b) for a, b in dict.fromkeys(example.compared) if a != b and math.isfinite(b)]
    for number, other in pairs[:_MOST]:
        size = math.floor(other) + 1 if number <= other else math.ceil(other) - 1
        names = [dim.name for dim in oracle.dims if dim.size == number]
        if names and 0 < size <= _LARGEST and (probe := oracle.at(dict.fromkeys(names, size), far=True)):
            yield probe


def at_keys(oracle: Oracle) -> Iterator[Probe]:
    """Probes at the sizes by which the model looks something up."""
    for key in [one for one in oracle.hints.looked_up if all(1 <= n <= _LARGEST for n in one)][:_KEYS]:
        for names in _groups(oracle):
            fitting = len(key) == 1 or len(names) == len(key)
            wish = dict(zip(names, key if len(key) > 1 else key * len(names), strict=True)) if fitting else {}
            # Each is a guess: the usual sizes need the other half.
            if oracle.used_up or oracle.half_spent:
                return
            probe = oracle.at(wish, far=True) if any(wish[name] != oracle.example[name] for name in wish) else None
            if probe:
                yield probe


def _groups(oracle: Oracle) -> Iterator[list[str]]:
    """The dimensions inside, such as height and width; those outside, such as the batch."""
    inner = [dim.name for dim in oracle.dims if any(axis for _, axis, _ in dim.places)]
    yield from filter(None, (inner, [dim.name for dim in oracle.dims if dim.name not in inner]))


def _recorded(example: Decisions) -> set[float]:
    """The numbers that recorded comparisons had: these have their own probes."""
    sizes = {one.other for one in example.sizes.comparisons}
    data = {value + k for value in example.constants.values for k in (-1, 0, 1)}
    return sizes | data | set(example.constants.equals) | {other for _, other in example.compared}


def _beyond(constant: float) -> int:
    return math.floor(constant) + 1


def _power(constant: float) -> int:
    """A size whose logarithm is beyond the constant."""
    return int(2**constant) + 1 if 8 <= constant <= 12 else 0
