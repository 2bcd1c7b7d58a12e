"""No function has more than twelve branch points."""

from __future__ import annotations

import pytest

from tests.branch_points import branch_points, over


@pytest.mark.quick  # what every change can break
def test_no_function_has_many_branch_points():
    assert not over(), "\n".join(f"{count} {place}" for count, place in over())


def test_each_kind_of_branch_counts_once():
    source = """
def f(x):
    if x and x > 1 or not x:
        return [y for y in x if y]
    for y in x:
        while y:
            try:
                y = 1 if x else 2
            except ValueError:
                pass
    def g():
        return x or 1
"""
    assert list(branch_points(source)) == [(9, 2, "f"), (1, 11, "g")]
