"""A comparison of a computed float is noted at the value of its source that turns it."""

import copy
import math

import pytest

from onnxpatch.decisions.ask import Number
from onnxpatch.verification.size_recorder import SizeWatch


def noted(ask, source=12.0):
    found = []
    ask(Number(source, lambda *told: found.append(told)))
    return found


@pytest.mark.parametrize(
    ("compute", "other"),
    [
        (lambda v: v + 3, 9.0), (lambda v: 3 + v, 9.0), (lambda v: v - 3, 2.0), (lambda v: 30 - v, 2.5),
        (lambda v: v * 0.1, 3.0), (lambda v: 0.1 * v, 3.0), (lambda v: v / 64, 2.0), (lambda v: 96 / v, 2.0),
        (lambda v: -v, -7.0), (lambda v: 2 * (v - 1) / 3, 5.0), (lambda v: abs(v), 5.0),
    ],
)  # fmt: skip
def test_turns_where_it_is_noted(compute, other):
    [(wanted, answer, equality, rounding)] = noted(lambda v: compute(v) > other)
    assert (answer, equality, rounding) == (compute(12.0) > other, False, False)
    assert (compute(wanted * 0.999) > other) != (compute(wanted * 1.001) > other)


def test_whole_results_and_steps():
    assert noted(lambda v: v * 0.1 == 3) == [(30.0, False, True, False)]
    assert noted(lambda v: v // 10 == 3) == [(35.0, False, True, False)]
    assert noted(lambda v: math.ceil(v / 64)) == [(64.0, False, False, True)]
    assert noted(lambda v: round(v, 1)) == []


def test_no_value_of_the_source_gives_it():
    assert noted(lambda v: v * 0.0 == 3) == [(None, False, True, False)]
    assert noted(lambda v: 1 / v == 0) == [(None, False, True, False)]


def test_a_size_is_compared_with_what_its_fraction_is():
    watch = SizeWatch()
    size = watch.watched(30)
    assert not size / watch.watched(20) > 2
    assert [(one.size, one.other, one.answer) for one in watch.comparisons] == [(30, 40, False)]


def test_rounding_gives_a_watched_size_again_and_a_copy_is_plain():
    size = SizeWatch().watched(30)
    assert type(math.floor(size / 4)) is type(size)
    assert type(copy.copy(size / 4)) is float and hash(size / 4) == hash(7.5)
