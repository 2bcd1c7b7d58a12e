"""Operators on fake tensors run once for equal arguments; what the data decide, and what is written, stays apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnxpatch
from onnxpatch._torch.cond import free_symbols
from onnxpatch._torch.fake_sizes import FakeWorld

pytestmark = pytest.mark.exports

ADD, NONZERO = torch.ops.aten.add.Tensor, torch.ops.aten.nonzero.default


@pytest.fixture
def world() -> FakeWorld:
    return FakeWorld()


def called(shared: Any, world: FakeWorld, operator: Any, *args: Any) -> tuple[Any, int]:
    """The first result of an operator, and how often it ran."""
    runs = []

    def run() -> Any:
        runs.append(1)
        with world.running():
            return operator(*(one.detach() if isinstance(one, Tensor) else one for one in args))

    return shared.results(operator, list(args), {}, run)[0], len(runs)


def test_equal_calls_run_once(world: FakeWorld) -> None:
    shared = world.shared
    x, w = (shared.tensor(world.fake(torch.ones(2, 3), frozenset(axes), n)) for n, axes in enumerate(([0], [])))
    y, runs = called(shared, world, ADD, x, w)
    assert runs == 1 and called(shared, world, ADD, x, w) == (y, 0)
    assert y is x  # of its shape
    assert called(shared, world, ADD, x, 2.0)[1] == called(shared, world, ADD, x, 2)[1] == 1


def test_sizes_that_the_data_decide_are_others_at_every_call(world: FakeWorld) -> None:
    shared = world.shared
    x = shared.tensor(world.fake(torch.ones(2, 3), frozenset([0]), 0))
    (one, runs), (two, again) = called(shared, world, NONZERO, x), called(shared, world, NONZERO, x)
    assert runs == again == 1 and one is not two


@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_three_operands_broadcast_over_symbolic_sizes(world: FakeWorld, name: str) -> None:
    x = world.fake(torch.ones(5, 6), frozenset([0]), 0)
    with world.running():
        found = getattr(torch.ops.aten, name)(x, x[:, :1], x[:1])
    assert found.shape[1] == 6 and isinstance(found.shape[0], torch.SymInt)


class Written(nn.Module):
    """A shape is changed in place, and other tensors of the former shape are asked afterwards."""

    def forward(self, x: Tensor) -> Tensor:
        other = x * 2
        grown = (x + 1).unsqueeze_(1)
        assert int(grown.shape[1]) == 1
        return (other + 3).reshape(int(other.shape[0]), int((other + 3).shape[1])) + grown.sum(1)


def test_what_is_written_in_place_leaves_its_equals_alone() -> None:
    report = onnxpatch.export(
        Written().eval(), (torch.randn(2, 5),), exporter="trace", dynamic_shapes=({0: "n"},), attempts="asked"
    )
    assert report.ok


def test_what_is_padded_keeps_its_symbols(world: FakeWorld) -> None:
    x = world.fake(torch.ones(2, 3, 8), frozenset([0, 2]), 0)
    with world.running():
        padded = torch.nn.functional.pad(x, (1, 2, 0, 1))
    assert padded.shape[1] == 4 and free_symbols(padded.shape[0])
    assert str(padded.shape[0]) == str(x.shape[0]) and str(padded.shape[2]) == str(x.shape[2] + 3)
