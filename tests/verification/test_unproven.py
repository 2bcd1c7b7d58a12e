"""A dynamic dimension that no comparison has moved is not proven; whole numbers move with the size they mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.dims import dynamic_dims
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.testing import assert_exports
from onnxpatch.verification.probe import Budget, resized_ints
from onnxpatch.verification.reference import Reference

pytestmark = pytest.mark.exports


class Masked(nn.Module):
    """The number of steps is read off the lengths, and frozen by the trace."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        mask = torch.arange(int(lengths.max()))[None] < lengths[:, None]
        return x * mask[..., None]


class Secretive(nn.Module):
    """Takes another number of rows only with a first element that no probe has."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.jit.is_tracing():
            return x * 2
        if x.shape[0] != 4 and x.reshape(-1)[0] != 12345.0:
            raise ValueError("no such rows")
        return x * 2


MASKED = (torch.randn(2, 20, 4), torch.tensor([20, 13]))


def sizes_tried(model: nn.Module, args: tuple[Any, ...], dynamic: Any) -> set[tuple[int, ...]]:
    inputs = Inputs(model, args)
    dims = dynamic_dims(inputs, shapes.read_shapes(inputs, dynamic))
    return {tuple(probe.sizes.values()) for probe in Reference(model, inputs, dims, Budget()).probes}


def test_lengths_move_with_the_steps_that_they_count() -> None:
    tried = sizes_tried(Masked(), MASKED, ({0: "b", 1: "n"}, {0: "b"}))
    assert {n for _, n in tried} > {1, 2, 20, 21} and {b for b, _ in tried} > {1, 2, 3}
    with pytest.raises(onnxpatch.VerificationError, match="n="):
        onnxpatch.export(
            Masked().eval(),
            MASKED,
            dynamic_shapes=({0: "b", 1: "n"}, {0: "b"}),
            exporter="trace",
            only=(),
            attempts="asked",
        )


@pytest.mark.parametrize(
    ("values", "shape", "moves", "expected"),
    [
        ([20, 13], [2], [(2, 2), (20, 25)], [25, 16]),
        ([20, 13], [1], [(2, 1), (20, 20)], [20]),
        ([0, 5, 12, 20], [4], [(3, 3), (20, 33)], [0, 8, 20, 33]),
        ([0, 4, 8], [4], [(2, 3), (8, 12)], [0, 4, 8, 12]),
        ([3, 5, 12], [3], [(3, 3), (20, 9)], [1, 2, 6]),
        ([0, 1, 2, 3], [6], [(4, 6)], [0, 1, 2, 3, 4, 5]),
        ([1, 1, 1, 0, 0, 0], [4], [(6, 4)], [1, 1, 0, 0]),
        ([1, 1, 1, 1, 0, 0], [4], [(2, 1), (6, 4)], [1, 1, 1, 0]),
        ([[1] * 5] * 2, [2, 4], [(2, 1), (5, 4)], [[1] * 4] * 2),
    ],
    ids=["lengths", "fewer rows", "offsets", "more offsets", "parts", "positions", "mask", "mask beside two", "ones"],
)
def test_whole_numbers_at_another_size(values: Any, shape: Any, moves: Any, expected: Any) -> None:
    assert resized_ints(torch.tensor(values), shape, moves).tolist() == expected


def packed(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return torch.stack([part.sum(0) for part in x.tensor_split(offsets[1:-1])]) + (offsets[-1] - x.shape[0]).sqrt()


def parts(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return torch.cat([part * 2 for part in x.split(lengths.tolist())])


class Call(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*args)


@pytest.mark.parametrize(
    ("function", "other"), [(packed, torch.tensor([0, 3, 5, 9])), (parts, torch.tensor([3, 2, 4]))], ids=["ends", "sum"]
)
def test_offsets_and_parts_move_with_the_rows(function: Callable[..., torch.Tensor], other: torch.Tensor) -> None:
    tried = sizes_tried(Call(function), (torch.randn(9, 2), other), ({0: "n"}, None))
    assert len(tried) > 3


def test_a_dimension_that_eager_moves_for_no_probe_is_unproven(tmp_path: Path) -> None:
    file, x = tmp_path / "m.onnx", torch.randn(4, 3)
    report = onnxpatch.export(Secretive().eval(), (x,), file, dynamic_shapes=({0: "n"},), exporter="trace")
    assert report.verdict == "unproven" and not report.ok and not report and file.is_file()
    headline = str(report).splitlines()[0]
    assert "UNPROVEN, right at " in headline and "compared at n = 4 alone" in headline
    assert "data=[args]" in str(report) and "axis 0 of x" in str(report)
    assert "eager refuses the other sizes" in report.unproven[0].reason and "no such rows" in str(report)
    assert not onnxpatch.verify(file, Secretive(), (x,), guards=False)
    given = torch.full((7, 3), 12345.0)
    proven = onnxpatch.verify(file, Secretive(), (x,), guards=False, data=[(given,)])
    assert proven and proven.verdict == "right" and not proven.unproven


def test_size_one_by_broadcasting_proves_nothing() -> None:
    table = torch.randn(6, 2)
    report = onnxpatch.export(
        Call(lambda x: x + table).eval(), (torch.randn(6, 2),), dynamic_shapes=({0: "n"},), dynamo=False
    )
    assert report.verdict == "unproven" and "n=7: RuntimeError" in report.unproven[0].reason


def test_assertions_fail_unless_unproven_is_allowed() -> None:
    asked: dict[str, Any] = {"dynamic_shapes": ({0: "n"},), "exporters": "trace"}
    with pytest.raises(AssertionError, match="UNPROVEN"):
        assert_exports(Secretive().eval(), (torch.randn(4, 3),), **asked)
    assert "trace" in assert_exports(Secretive().eval(), (torch.randn(4, 3),), allow_unproven=True, **asked)


def test_what_was_not_compared_is_unchecked() -> None:
    report = onnxpatch.export(nn.ReLU().eval(), (torch.ones(2),), check=False, exporter="trace")
    assert report.verdict == "unchecked" and not report and "unchecked, nothing was compared" in str(report)
    with pytest.raises(AssertionError, match="unchecked"):
        assert_exports(nn.ReLU().eval(), (torch.ones(2),), check=False, exporters="trace")


class Picture(nn.Module):
    """Takes values in [0, 1] only, as functions on images do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.jit.is_tracing() and not 0 <= float(x.min()) <= float(x.max()) <= 1:
            raise ValueError("values outside [0, 1]")
        return x.sqrt()


def test_values_stay_in_the_range_of_the_example(tmp_path: Path) -> None:
    x = torch.linspace(0, 2, 48).clamp(max=1).reshape(2, 4, 6)
    report = onnxpatch.export(
        Picture().eval(), (x,), tmp_path / "m.onnx", exporter="trace", dynamic_shapes=({0: "b", 1: "h", 2: "w"},),
        attempts="asked",
    )  # fmt: skip
    assert report.verdict == "right"


def test_a_dimension_whose_other_sizes_are_wrong_is_not_called_unproven() -> None:
    class Frozen(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * float(torch.ones(x.shape[0]).sum())

    asked: dict[str, Any] = {"exporter": "trace", "only": (), "attempts": "asked"}
    with pytest.raises(onnxpatch.VerificationError) as wrong:
        onnxpatch.export(Frozen().eval(), (torch.randn(4, 3),), dynamic_shapes=({0: "n"},), **asked)
    assert "WRONG" in str(wrong.value) and "UNPROVEN" not in str(wrong.value)
