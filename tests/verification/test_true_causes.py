"""What a report names as the cause, and what it does not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import onnxpatch

pytestmark = pytest.mark.exports


class First(nn.Module):
    """The graph adds three numbers to the first three columns, and stops where there are two."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] < 3:
            return x * 2
        return x[:, :3] + torch.arange(3.0)


class Sum(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Fixed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(2, 9) * 2 if x.shape[1] == 9 else x * 2


PLAIN = {"exporter": "trace", "only": (), "attempts": "asked"}


def report_of(model: nn.Module, x: torch.Tensor) -> onnxpatch.Report:
    try:
        return onnxpatch.export(model.eval(), (x,), dynamic_shapes=({1: "T"},), bounds="never", **PLAIN)
    except onnxpatch.VerificationError as error:
        assert isinstance(error.report, onnxpatch.Report)
        return error.report


def test_a_file_that_is_right_at_many_sizes_is_not_called_specialized():
    report = report_of(First(), torch.randn(2, 100))
    assert report.wrong and report.frozen
    assert not any("specialized" in one.where for one in report.frozen)
    assert any(one.where.startswith("makes this node fail at 2, not at ") for one in report.frozen)


def test_a_file_that_is_right_at_one_size_is():
    report = report_of(Fixed(), torch.randn(2, 9))
    assert any("was specialized to 9; this node fails at" in one.where for one in report.frozen)


def test_two_names_for_one_size_are_told_of():
    args, shapes = (torch.randn(4, 3), torch.randn(4, 3)), ({0: "a"}, {0: "b"})
    report = onnxpatch.export(Sum().eval(), args, dynamic_shapes=shapes, exporter="trace")
    said = [note for note in report.notes if "give both one name" in note]
    joined = onnxpatch.export(Sum().eval(), args, dynamic_shapes=({0: "a"}, {0: "a"}), exporter="trace")
    assert len(said) == 1 and "'a' and 'b'" in said[0]
    assert not any("give both one name" in note for note in joined.notes)


def test_a_traced_model_exports_by_trace():
    model = torch.jit.trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), (torch.randn(3, 4),))
    assert onnxpatch.export(model, (torch.randn(3, 4),), dynamic_shapes=({0: "B"},), exporter="trace").ok
