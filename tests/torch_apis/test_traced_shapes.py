"""Shapes that are told by the arguments of an operator are those that torch derives on fake tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from onnxpatch._torch.fake_sizes import FakeWorld
from onnxpatch._torch.traced_shapes import _SHAPES, result_shape

ATEN = torch.ops.aten

CASES: dict[str, tuple[Any, Any]] = {
    "reshape": (ATEN.reshape.default, lambda x, w: (x, [x.shape[0] * x.shape[1], 8])),
    "reshape, inferred": (ATEN.reshape.default, lambda x, w: (x, [x.shape[0], -1, 2, 4])),
    "reshape, all in one": (ATEN.reshape.default, lambda x, w: (x, [-1])),
    "view": (ATEN.view.default, lambda x, w: (x, [x.shape[0], x.shape[1], 2, 4])),
    "view, inferred": (ATEN.view.default, lambda x, w: (x, [-1, 8])),
    "flatten": (ATEN.flatten.using_ints, lambda x, w: (x, 0, -2)),
    "flatten, one axis": (ATEN.flatten.using_ints, lambda x, w: (x, 1, 1)),
    "linear": (ATEN.linear.default, lambda x, w: (x, w)),
    "linear, one dimension": (ATEN.linear.default, lambda x, w: (x, w[0])),
    "contiguous": (ATEN.contiguous.default, lambda x, w: (x.transpose(0, 1),)),
    "dropout": (ATEN.dropout.default, lambda x, w: (x, 0.5, False)),
    "gelu": (ATEN.gelu.default, lambda x, w: (x,)),
    "layer_norm": (ATEN.layer_norm.default, lambda x, w: (x, [8], None, None, 1e-5, True)),
}


@pytest.fixture
def world() -> FakeWorld:
    return FakeWorld()


def operands(world: FakeWorld) -> tuple[Tensor, Tensor]:
    """Three dimensions of which two are symbols, and a weight."""
    return world.fake(torch.ones(2, 3, 8), frozenset([0, 1]), 0), world.fake(torch.ones(5, 8), None, None)


@pytest.mark.parametrize("name", CASES)
def test_the_shape_is_the_one_that_torch_derives(world: FakeWorld, name: str) -> None:
    operator, arguments = CASES[name]
    x, weight = operands(world)
    with world.running():
        args = arguments(x, weight)
        told, derived = result_shape(operator, args), operator(*args)
    if told is None:
        assert name == "linear, one dimension"
        return
    assert [str(size) for size in told] == [str(size) for size in derived.shape]
    assert derived.dtype == x.dtype


def test_each_operator_of_the_table_has_a_case() -> None:
    assert set(_SHAPES) == {operator for operator, _ in CASES.values()}


def test_sizes_that_are_no_numbers_are_left_to_torch(world: FakeWorld) -> None:
    x, _ = operands(world)
    assert result_shape(ATEN.reshape.default, (x, [torch.tensor(6), 8])) is None
    assert result_shape(ATEN.add.Tensor, (x, x)) is None


def test_a_told_shape_is_compared_with_nothing(world: FakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch compares sizes for a `reshape`, which takes its time; to name them takes no comparison."""
    compared: list[Any] = []
    environment = world.mode.shape_env
    original = environment.evaluate_expr
    monkeypatch.setattr(
        environment, "evaluate_expr", lambda *args, **kwargs: compared.append(args) or original(*args, **kwargs)
    )
    x, _ = operands(world)
    with world.running():
        sizes = [x.shape[0] * x.shape[1], 8]
        del compared[:]
        shape = result_shape(ATEN.reshape.default, (x, sizes))
        told = len(compared)
        x.reshape(sizes)
    assert shape is not None and told == 0 < len(compared)


def test_a_size_that_is_1_in_the_example_is_another_elsewhere(world: FakeWorld) -> None:
    x, table = world.fake(torch.ones(1, 1), frozenset([0, 1]), 0), world.fake(torch.ones(1, 1), None, None)
    with world.running():
        for made in (x * table, table * x, torch.where(x > 0, table, x)):
            assert made.shape == x.shape and all(isinstance(size, torch.SymInt) for size in made.shape)
