"""Which sizes and data are tried, found by asking eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.dims import dynamic_dims
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Budget, Probe, fitted
from onnxpatch.verification.reference import Reference
from tests.verified_models import DataBranch, NativeSize, Shrinks


class Call(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        return self.function(x) if y is None else self.function(x, y)


def found(model: nn.Module, args: tuple[Any, ...], dynamic: Any, **budget: Any) -> tuple[list[Probe], Oracle]:
    inputs = Inputs(model, args)
    dims = dynamic_dims(inputs, shapes.read_shapes(inputs, dynamic))
    reference = Reference(model.eval(), inputs, dims, Budget(**budget))
    return reference.probes, reference.oracle


def sizes(probes: list[Probe]) -> list[tuple[int, ...]]:
    return [tuple(p.sizes.values()) for p in probes]


def test_free_batch_gets_one_two_and_more() -> None:
    probes, _ = found(Call(torch.relu), (torch.randn(2, 3),), ({0: "b"},))
    tried = {b for (b,) in sizes(probes)}
    assert {1, 2, 3} <= tried and max(tried) > 6
    assert probes[0].kind == "example" and probes[1].kind == "data"


def test_step_is_discovered() -> None:
    probes, search = found(Call(lambda x: x.reshape(2, -1, 14)), (torch.randn(2, 28),), ({1: "n"},))
    others = {n for (n,) in sizes(probes)} - {28}
    assert others and all(n % 7 == 0 for n in others)
    assert search.refused and "shape" in search.first_refusal


def test_multiples_of_the_example_are_odd_first() -> None:
    """Where the budget ends early, twice the example would be all: windows of 4 in 8 rows are whole."""

    def strict(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1, 32)

    probes, _ = found(Call(strict), (torch.randn(1, 32),), ({1: "n"},))
    assert next(n for (n,) in sizes(probes) if n != 32) == 96


def test_sizes_that_go_together_only() -> None:
    def square(x: torch.Tensor) -> torch.Tensor:
        return x @ torch.ones(x.shape[0], 1) if x.shape[0] == x.shape[1] else x.view(-1, -1)

    probes, _ = found(Call(square), (torch.randn(6, 6),), ({0: "n", 1: "m"},))
    assert any(n != 6 for n, _ in sizes(probes)) and all(n == m for n, m in sizes(probes))


def test_proportional_sizes() -> None:
    probes, _ = found(Call(lambda x, y: x.repeat(3) + y), (torch.randn(4), torch.randn(12)), ({0: "n"}, {0: "m"}))
    assert len(set(sizes(probes))) > 1 and all(m == 3 * n for n, m in sizes(probes))


def test_equal_names_move_together_and_unlike_ones_apart() -> None:
    args = (torch.randn(4, 5), torch.randn(4, 7))
    model = Call(lambda x, y: x.sum() + y.sum())
    together, _ = found(model, args, ({0: "b"}, {0: "b"}))
    assert all(p.values[0].shape[0] == p.values[1].shape[0] for p in together)
    apart, _ = found(model, args, ({0: "b"}, {0: "c"}))
    assert any(p.values[0].shape[0] != p.values[1].shape[0] for p in apart)


def test_declared_bounds_are_kept() -> None:
    dim = torch.export.Dim("b", min=2, max=5)
    probes, _ = found(Call(torch.relu), (torch.randn(3, 3),), ({0: dim},))
    assert {b for (b,) in sizes(probes)} <= {2, 3, 4, 5} and len(set(sizes(probes))) > 1


def test_from_an_empty_example_there_is_a_way_to_other_sizes() -> None:
    def model(past: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        return torch.cat((past, new.expand(-1, 3)), 0)

    args = (torch.randn(0, 3), torch.randn(2, 3))
    probes, _ = found(Call(model), args, ({0: torch.export.Dim("past", min=0)}, {0: "n"}))
    assert (0, 2) in sizes(probes) and {past for past, n in sizes(probes) if n == 2} >= {0, 1, 2}
    assert any(past == 0 and n > 2 for past, n in sizes(probes))
    filled, _ = found(Call(model), (torch.randn(3, 3), torch.randn(2, 3)), ({0: "past"}, {0: "n"}))
    assert all(past for past, _ in sizes(filled))  # torch's default minimum of 0 asks for nothing


def test_trained_size_is_tried_from_another_example() -> None:
    probes, _ = found(NativeSize(), (torch.randn(2, 3, 40, 56),), ({0: "b", 2: "h", 3: "w"},))
    assert any(p.sizes["h"] == p.sizes["w"] == 32 for p in probes)


def test_numbers_in_the_code_are_tried() -> None:
    class Caps(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, : min(x.shape[1], 11)]

    probes, oracle = found(Caps(), (torch.randn(2, 8),), ({1: "t"},))
    assert 11 in oracle.mentioned.thresholds
    assert any(t > 11 for (t,) in sizes(probes))


def test_data_that_flips_a_branch_is_found() -> None:
    probes, _ = found(DataBranch(), (torch.rand(2, 3) + 0.1,), None)
    assert any(p.kind == "branch" and p.values[0].mean() < 0 for p in probes)


def test_a_loop_that_infinity_does_not_end_is_left_alone() -> None:
    class Halves(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            while x.abs().max() > 1:
                x = x / 2
            return x

    probes, _ = found(Halves(), (torch.rand(2, 3),), None)
    assert any(p.kind == "branch" for p in probes)
    assert all(torch.isfinite(p.values[0]).all() for p in probes)


def test_whole_numbers_stay_in_the_range_of_the_example() -> None:
    table = nn.Embedding(10, 4)
    probes, _ = found(Call(table), (torch.randint(0, 10, (2, 5)),), ({0: "b", 1: "t"},))
    assert len(probes) > 4 and all(p.values[0].max() < 10 for p in probes)


def test_every_answer_comes_from_the_state_handed_in() -> None:
    model = Shrinks()
    probes, _ = found(model, (torch.ones(6, 2),), ({0: "b"},))
    assert model.window == 8 and model.seen == []
    for probe in probes:
        expected = probe.values[0] * min(8, probe.sizes["b"])
        assert torch.equal(probe.expected[0], expected)


def test_larger_and_smaller_numbers_are_tried_where_eager_is_finite() -> None:
    def tried(function: Callable[..., torch.Tensor]) -> set[str]:
        probes, _ = found(Call(function), (torch.randn(3, 4) * 5,), ({0: "b"},))
        return {p.label for p in probes} & {"times 30", "times 0.001"}

    assert tried(torch.relu) == {"times 30", "times 0.001"}
    assert tried(lambda x: torch.exp(x * x.abs())) == {"times 0.001"}  # infinite


def test_limits_bound_the_search() -> None:
    asked = []
    model = Call(lambda x: asked.append(1) or x.relu())
    probes, _ = found(model, (torch.randn(2, 3, 16, 16),), ({0: "b", 2: "h", 3: "w"},), probes=6, questions=10)
    assert len(probes) <= 6 and len(asked) < 16


def test_nan_is_tried_only_where_the_forward_looks_for_it() -> None:
    def careful(x: torch.Tensor) -> torch.Tensor:
        return x.nan_to_num(0) if torch.isnan(x).any() else x

    def careless(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.max().item() > 1 else x

    for function, expected in ((careful, True), (careless, False)):
        probes, _ = found(Call(function), (torch.rand(2, 3),), None)
        assert any(torch.isnan(p.values[0]).any() for p in probes) is expected


@pytest.mark.parametrize("limit", [1e-4, 3e5])
def test_a_number_far_from_the_data_is_passed(limit: float) -> None:
    def gated(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.norm() > limit else x

    probes, _ = found(Call(gated), (torch.rand(2, 3),), None)
    assert {bool(p.values[0].norm() > limit) for p in probes} == {True, False}


def test_whole_numbers_and_flags_are_varied_without_any_branch() -> None:
    def last(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x[torch.arange(2), mask.sum(1) - 1]

    mask = torch.ones(2, 5, dtype=torch.long)
    probes, _ = found(Call(last), (torch.rand(2, 5), mask), None)
    assert any(not p.values[1].any() for p in probes)
    probes, _ = found(Call(lambda x: x * 3), (mask,), None)
    assert any((p.values[0] < 0).any() for p in probes)
    probes, _ = found(Call(last), (torch.rand(2, 5), mask.bool()), None)
    assert any(not p.values[1].any() for p in probes)


def test_a_complex_input_is_cut_to_another_size() -> None:
    given = torch.complex(torch.rand(2, 5), torch.rand(2, 5))
    assert torch.equal(fitted(given, (2, 3), torch.Generator()), given[:, :3])
