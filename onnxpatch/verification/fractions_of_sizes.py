"""Finds sizes at which a fraction of the size is rounded differently in float32 than in Python.

Python computes `int(n * 0.29)` in float64, where 100 * 0.29 is 28.999…: 28. A graph that computes in float32 has 29.0.
For 0.29 this happens at 4 of the first 1,024 sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.size_recorder import SizeWatch

_FURTHEST = 1024
_NEAR = 1e-6  # relative: what a graph may add before it rounds down
_MOST = 2  # products


def fractions_of_sizes(oracle: Oracle, sizes: SizeWatch) -> Iterator[Probe]:
    """Probes at such sizes, for the first products that eager computed: one for each way of rounding."""
    for size, fraction, divided in list(sizes.products)[:_MOST]:
        # A size that eager multiplied may be computed from an input's: then the input's is scaled along with it.
        theirs = [dim for dim in oracle.dims if dim.size == size] or oracle.dims
        for n in dict.fromkeys(distinguishing_sizes(fraction, divided)):
            wishes = ({dim.name: n if dim.size == size else n * dim.size // max(1, size)} for dim in theirs)
            probe = next(filter(None, (oracle.at(wish, far=True) for wish in wishes)), None)
            if probe:
                yield probe


def distinguishing_sizes(fraction: float, divided: bool = False) -> Iterator[int]:
    """For each way of rounding, the smallest size at which float32 and float64 differ: down, up, nearest, and down
    after a little was added."""
    exact = np.arange(1, _FURTHEST + 1, dtype=np.float64)
    wide = exact / fraction if divided else exact * fraction
    narrow = exact.astype(np.float32)
    narrow = (narrow / np.float32(fraction) if divided else narrow * np.float32(fraction)).astype(np.float64)
    if not math.isfinite(fraction) or not fraction or not np.isfinite(wide).all():
        return
    ways: tuple[Callable[[np.ndarray], np.ndarray], ...] = (np.floor, np.ceil, np.rint)
    for way in ways:
        # A graph may round to float32, or add or take away a little before it rounds: each is told apart.
        for other in (narrow, wide + np.abs(wide) * _NEAR, wide - np.abs(wide) * _NEAR):
            (differs,) = np.nonzero(way(wide) != way(other))
            if differs.size:
                yield int(exact[differs[0]])
                break
