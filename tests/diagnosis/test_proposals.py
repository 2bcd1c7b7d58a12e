"""The smallest part of a list, or of a plan, that makes a difference."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import onnxpatch
from onnxpatch.diagnosis.proposals import fewest, guilty, steps_of
from onnxpatch.settings import Settings
from tests import exporting
from tests.layers import Doubling, Layer


@given(st.integers(1, 24).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=1))))
def test_exactly_the_guilty_are_left(case: tuple[int, set[int]]) -> None:
    count, culprits = case
    found = fewest(list(range(count)), lambda part: culprits <= set(part), tries=10_000)
    assert set(found) == culprits


def test_one_of_many_takes_few_tries() -> None:
    asked: list[Sequence[int]] = []

    def bad(part: Sequence[int]) -> bool:
        asked.append(part)
        return 777 in part

    assert fewest(range(1024), bad) == [777]
    assert len(asked) <= 20


def test_a_limit_on_tries_still_answers_with_something_bad() -> None:
    found = fewest(list(range(64)), lambda part: {3, 60} <= set(part), tries=3)
    assert {3, 60} <= set(found)


@pytest.fixture
def patched_pair() -> tuple[nn.Module, onnxpatch.Plan]:
    registry = onnxpatch.Registry()
    onnxpatch.patch("tests.layers.Layer", name="doubling", why="a test", registry=registry)(Doubling)
    onnxpatch.patch("torch.relu", name="same", why="a test", registry=registry)(lambda original, x: original(x))
    model = nn.Sequential(Layer(), nn.Identity(), Layer()).eval()
    return model, onnxpatch.plan(model, settings=Settings(), registry=registry)


def test_a_plan_is_taken_apart_to_the_entry_that_is_wrong(patched_pair) -> None:
    model, made = patched_pair
    assert [(step.patch, step.path) for step in steps_of(made)] == [
        ("doubling", "0"),
        ("doubling", "2"),
        ("same", None),
    ]
    x = torch.randn(2, 4)
    only_last = model.requires_grad_(False)[2](x)
    found = guilty(made, lambda: not torch.equal(exporting.while_traced(lambda: model[2](x)), only_last))
    assert [(step.patch, step.path) for step in found] == [("doubling", "2")]
    assert torch.equal(model[2](x), only_last) and type(model[2]) is Layer


def test_nobody_is_guilty_of_what_does_not_happen(patched_pair) -> None:
    _, made = patched_pair
    assert guilty(made, lambda: False) == []
