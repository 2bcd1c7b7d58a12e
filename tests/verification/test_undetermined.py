"""Differences that eager itself does not determine: ties, rounding, cancelled digits, NaN of a fast path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.results.checks import Checked
from onnxpatch.verification import runner
from onnxpatch.verification.eager import Eager
from onnxpatch.verification.probe import Probe

pytestmark = pytest.mark.exports


def wrong_by(model: nn.Module, x: torch.Tensor, shift: Any, exact: bool = False) -> Checked:
    """A check of an answer that is eager's, changed."""
    eager = Eager(model.eval(), Inputs(model, (x,)))
    expected = eager.ask([x]).outputs or ()
    found = [shift(one).numpy() for one in expected if one is not None]
    head = Checked("onnxruntime", "example", "example", {})
    return runner.judged(head, ["y"], found, Probe("example", "example", {}, [x], expected, exact=exact), eager, 1e-3)


class Hilbert(nn.Module):
    """A product of matrices that float32 does not determine, though no input moves it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = torch.arange(9, device=x.device, dtype=x.dtype)
        return torch.linalg.solve(1 / (n[:, None] + n + 1), torch.ones_like(n)) + 0 * x.sum()


def test_float64_is_asked_before_the_verdict_wrong() -> None:
    told = wrong_by(Hilbert(), torch.ones(2), lambda y: y * 1.02)
    assert told.status == "unsteady" and "float64" in told.error
    assert wrong_by(nn.Linear(2, 2), torch.ones(2), lambda y: y * 1.02).status == "wrong"


class Matched(nn.Module):
    """The best match of each row, by a softmax of products."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ x.T).softmax(-1).argmax(-1)


def test_roundings_inside_decide_the_best_of_nearly_equal_matches() -> None:
    torch.manual_seed(0)
    rows = torch.randn(16, 8)
    told = wrong_by(Matched(), rows * 1e-3, lambda y: torch.cat([(y[:1] + 1) % 16, y[1:]]))
    assert told.status == "unsteady" and "softmax" in told.error
    assert wrong_by(Matched(), rows, lambda y: torch.cat([(y[:1] + 1) % 16, y[1:]])).status == "wrong"


class Cancels(nn.Module):
    """A sum of large weights that nearly cancel, beside an input of zeros that no rounding moves."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1e4, -1e4 + 1]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight.sum()


def test_weights_are_moved_where_inputs_cannot_be() -> None:
    told = wrong_by(Cancels(), torch.zeros(2), lambda y: y * 1.002)
    assert told.status == "unsteady" and "weights" in told.error
    assert wrong_by(Cancels(), torch.zeros(2), lambda y: y * 1.2).status == "wrong"


class Coarse(nn.Module):
    """float32 to the outside, bfloat16 within."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.bfloat16() * 3).float()


def test_bfloat16_on_the_way_is_compared_as_bfloat16() -> None:
    x = torch.linspace(-1, 1, 9)
    assert wrong_by(Coarse(), x, lambda y: y * 1.003).status == "right"
    assert wrong_by(Coarse(), x, lambda y: y * 1.1).status == "wrong"
    assert wrong_by(nn.Linear(9, 9), x, lambda y: y * 1.003).status == "wrong"


class Order(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sort(dim=-1, stable=False).indices


def test_ties_are_named() -> None:
    # One pair in the one order, the other pair in the other.
    told = wrong_by(Order(), torch.tensor([3.0, 1.0, 3.0, 1.0]), lambda y: y[[0, 1, 3, 2]])
    assert told.status == "unsteady" and "torch.sort(stable=False)" in told.error
    assert wrong_by(Order(), torch.tensor([4.0, 1.0, 3.0, 2.0]), lambda y: y.flip(0)).status == "wrong"


class Likeliest(nn.Module):
    """The place of the largest logarithm."""

    def __init__(self, heal: bool = False) -> None:
        super().__init__()
        self.heal = heal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.log().nan_to_num(9.0) if self.heal else x.log()).argmax(-1)


@pytest.mark.parametrize(
    ("heal", "x", "status"),
    [(False, [1.0, -1.0], "unsteady"), (True, [1.0, -1.0], "wrong"), (False, [1.0, torch.nan], "wrong"),
     (False, [1.0, 2.0], "wrong")],
)  # fmt: skip
def test_a_nan_that_finite_inputs_made_has_no_place(heal: bool, x: list[float], status: str) -> None:
    assert wrong_by(Likeliest(heal), torch.tensor([x]), lambda y: 1 - y).status == status


class Nearest(nn.Module):
    """The sum of the rows of the nearest points; points that are far away are all equally far."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        nearest = x.abs().clamp(max=2.0).topk(2, largest=False).indices.view(-1).view(-1, 2)
        return x.gather(1, nearest).sum(1) + torch.arange(len(x))


def test_another_order_of_equal_values_is_right() -> None:
    # Both values of the first row are equally near, and those of the second are not.
    x = torch.tensor([[5.0, 3.0, 9.0], [0.1, 0.5, 3.0]])
    orders = {float(Nearest()(row)[0]) for row in (x[:1], x[:1].flip(1))}
    others = [lambda y, order=order: torch.cat([torch.tensor([order]), y[1:]]) for order in orders]
    checks = [wrong_by(Nearest(), x, other) for other in others]
    assert {check.status for check in checks} == {"right"} and any("equal values" in check.error for check in checks)


def test_ties_excuse_only_the_elements_that_they_decide() -> None:
    x = torch.tensor([[5.0, 3.0, 9.0], [0.1, 0.5, 3.0]])
    assert wrong_by(Nearest(), x, lambda y: y + torch.tensor([1.0, 0.0])).status == "unsteady"
    assert wrong_by(Nearest(), x, lambda y: y + torch.tensor([0.0, 1.0])).status == "wrong"


def test_exact_values_are_not_moved() -> None:
    class Seven(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.where(x == 7, x * 2, x)

    x = torch.tensor([7.0, 1.0])
    assert wrong_by(Seven(), x, lambda y: y * torch.tensor([0.5, 1.0])).status == "unsteady"
    assert wrong_by(Seven(), x, lambda y: y * torch.tensor([0.5, 1.0]), exact=True).status == "wrong"


def test_where_eager_has_nan_so_must_the_graph(tmp_path: Path) -> None:
    class Masked(nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            shares = x.masked_fill(~mask, -torch.inf).softmax(-1)
            return shares.nan_to_num(0) if torch.jit.is_tracing() else shares

    args = (torch.randn(2, 3), torch.tensor([[True, True, False]] * 2))
    with pytest.raises(onnxpatch.VerificationError, match="non-finite values differ"):
        onnxpatch.export(Masked().eval(), args, exporter="trace", attempts="asked")


def test_the_nan_of_a_fast_path_is_no_verdict() -> None:
    """In eval mode nn.TransformerEncoder has NaN for rows that are padding from end to end, in training zeros."""

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

        def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
            return self.layers(x, src_key_padding_mask=padding)

    padding = torch.tensor([[False, False, False], [False, True, True]])
    report = onnxpatch.export(Encoder().eval(), (torch.randn(2, 3, 8), padding), exporter="trace", attempts="asked")
    assert report.ok and any("fast path" in check.error for check in report.checks if check.status == "unsteady")


def test_unique_in_no_order_is_compared_sorted() -> None:
    class Distinct(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.unique(x, sorted=False)

    assert onnxpatch.export(Distinct(), (torch.randint(9, (4, 5)) * 0.5,), exporter="trace").ok


def test_an_answer_that_changes_with_rows_and_columns_exchanged_is_no_verdict() -> None:
    """torch's antialiased resize to one column (SigLIP 2 with images one patch wide) is not what it is to one row."""
    pytest.importorskip("transformers")
    proof = next(one for one in onnxpatch.REGISTRY if one.name == "siglip2-positions").proof
    assert proof is not None
    torch.manual_seed(0)
    report = onnxpatch.export(
        proof.build().eval(), proof.examples()[0], exporter="trace", only="siglip2-positions", attempts="asked"
    )
    undecided = [check for check in report.checks if check.status == "unsteady"]
    assert report.ok and {check.label for check in undecided} == {"the last element 1", "the last of each row 1"}
