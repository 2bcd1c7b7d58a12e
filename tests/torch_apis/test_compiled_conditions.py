"""Conditions on sizes as plain Python say what sympy says of every size, also where torch has functions of its own."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import sympy
from torch.utils._sympy import functions as own

from onnxpatch._torch.guards import compiled_condition

H, W = sympy.symbols("s0 s1", integer=True, positive=True)


@pytest.mark.parametrize(
    "condition",
    [
        sympy.Eq(own.FloorDiv(H, 2) * 2, W),
        sympy.Eq(own.Mod(H + W, 4), 0),
        sympy.Ne(own.PythonMod(H - 20, 7), W),
        sympy.Ge(own.Max(H, W, 3), 2 * own.Min(H, W)),
        sympy.Eq(sympy.Max(H, W), 5),
        sympy.And(sympy.Ge(H, 5), sympy.Ne(W, 3)),
        sympy.Not(sympy.Or(sympy.Lt(H, 5), sympy.Eq(W, 3))),
        sympy.Eq(sympy.floor(H / 2), W),
        sympy.Eq(own.FloorToInt(own.IntTrueDiv(H, 2)), W),
        sympy.Lt(own.OpaqueUnaryFn_sqrt(own.ToFloat(H)), 3),
        sympy.Eq(own.PowByNatural(H, 2), 4 * W),
        sympy.Eq(own.Where(sympy.Ge(H, 5), 1, 0), W - 3),
        sympy.true,
    ],
    ids=str,
)
def test_a_compiled_condition_says_what_sympy_says(condition: Any) -> None:
    points = list(itertools.product(range(1, 13), repeat=2))
    for (h, w), holds in zip(points, compiled_condition(condition, [H, W])(points), strict=True):
        assert holds is bool(condition.subs({H: h, W: w})), (h, w)


def test_a_condition_that_cannot_be_evaluated_is_unknown() -> None:
    unknown = sympy.Function("Unknown")
    assert compiled_condition(sympy.Eq(unknown(H), 1), [H])([[3]]) == [None]
    assert compiled_condition(sympy.Eq(own.Mod(H, W - 3), 1), [H, W])([[4, 3]]) == [None]
