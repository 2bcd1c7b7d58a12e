"""Sizes far from the example at which a forward decides otherwise: found, and held against the graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.dims import dynamic_dims
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.verification.branch_recorder import Decisions
from onnxpatch.verification.eager import Eager
from onnxpatch.verification.numbers_in_code import Mentioned
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Budget, Probe
from onnxpatch.verification.reference import find_probes
from tests.verification.far_branches import CASES

pytestmark = pytest.mark.exports

BY_NAME = pytest.mark.parametrize(
    ("model", "shape", "dynamic", "other"), [case[:4] for case in CASES], ids=[case[0].__name__ for case in CASES]
)


def found(model: nn.Module, args: tuple[Any, ...], dynamic: Any) -> list[Probe]:
    inputs = Inputs(model, args)
    dims = dynamic_dims(inputs, shapes.read_shapes(inputs, dynamic))
    eager = Eager(model.eval(), inputs)
    # What the code compares with is not read off it here: calls and attributes hide it in many models.
    oracle = Oracle(eager, inputs, dims, Budget())
    oracle.mentioned = Mentioned()
    decisions = eager.decisions(inputs.values(), sizes=True)
    return find_probes(oracle, oracle.start(eager.ask(inputs.values())), decisions)


@BY_NAME
def test_the_other_side_is_found(model: Any, shape: Any, dynamic: Any, other: Any) -> None:
    assert any(other(probe.sizes) for probe in found(model(), (torch.rand(shape),), dynamic))


@BY_NAME
def test_a_graph_of_one_side_is_no_success(model: Any, shape: Any, dynamic: Any, other: Any) -> None:
    with pytest.raises(onnxpatch.VerificationError) as caught:
        args = (torch.randn(shape),)
        onnxpatch.export(model().eval(), args, dynamic_shapes=dynamic, dynamo=False, only=(), attempts="asked")
    assert any(other(check.sizes) for check in caught.value.report.checks if not check.ok)


def test_watched_sizes_are_what_sizes_are() -> None:
    seen: dict[str, Any] = {}

    class Uses(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            n, c = x.shape
            seen.update(names={n: "n"}, text=f"{n}x{c}", rest=7 % n, quotient=divmod(n, 2), half=n / 2)
            assert isinstance(n, int) and n in {6, 7} and n < 6.5 and n != "6"
            return x.view(n // 2, 2, -1)[: len(range(n))].expand(n // 2, 2, c) * n

    with Decisions(watch_sizes=True) as watch:
        Uses()(torch.ones(6, 3))
    assert seen["names"][6] == "n" and seen["text"] == "6x3" and seen["rest"] == 1
    assert tuple(seen["quotient"]) == (3, 0) and seen["half"] == 3.0
    assert any(one.size == 6 and one.other == 6.5 and one.answer for one in watch.sizes.comparisons)


@pytest.mark.parametrize("training", [True, False])
def test_rrelu_draws_while_it_trains(training: bool) -> None:
    with Decisions() as watch:
        nn.functional.rrelu(torch.ones(2), 0.1, 0.3, training)
        torch.rrelu(torch.ones(2), training=training)
    assert watch.draws == training


def test_code_that_takes_no_int_but_int_itself_is_watched_without_its_sizes() -> None:
    class Strict(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if type(x.shape[0]) is not int:
                raise TypeError("no int")
            return x * 2 if x.mean() > 0 else x

    probes = found(Strict(), (torch.rand(2, 3),), ({0: "b"},))
    assert any(probe.kind == "branch" for probe in probes)
