"""Finds sizes whose ratio is a fraction that the model's code mentions: `math.isclose(w / h, 16 / 9)`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.own_code import own_code
from onnxpatch.verification.probe import Probe

_MOST = 2  # fractions
_COARSEST = 32  # their denominators


def ratios_of_sizes(oracle: Oracle) -> Iterator[Probe]:
    """Probes of two dimensions in such a ratio, near the example's sizes."""
    code = own_code(oracle.eager.model)
    for ratio in itertools.islice(dict.fromkeys(f for one in code for f in _fractions(one.co_consts)), _MOST):
        for a, b in itertools.permutations(oracle.dims, 2):
            share = max(1, round(a.size / ratio.denominator))
            probe = oracle.at({a.name: share * ratio.denominator, b.name: share * ratio.numerator})
            if probe:
                yield probe
                break


def _fractions(constants: tuple[object, ...]) -> Iterator[Fraction]:
    for one in constants:
        if isinstance(one, float) and 0.1 < one < 10 and one != int(one):
            near = Fraction(one).limit_denominator(_COARSEST)
            if abs(near - Fraction(one)) < Fraction(1, 10**6):
                yield near
