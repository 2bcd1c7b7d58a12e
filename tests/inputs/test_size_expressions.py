"""Sizes that follow from others, through both exporters: in the probes, and in the names of the file's sizes."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

import onnxpatch

pytestmark = pytest.mark.exports


class Step(nn.Module):
    """One attention of a decoder: new tokens see the past and themselves, as far as the mask lets them."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor, past: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        present = torch.cat([past, x], dim=1)
        scores = x @ present.transpose(1, 2) / 4 + (1.0 - mask.float())[:, None] * -1e4
        return scores.softmax(-1) @ present, present


def example(batch: int, new: int, past: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(batch, new, 16), torch.ones(batch, past + new, dtype=torch.int64), torch.randn(batch, past, 16)


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_a_mask_as_long_as_past_and_new_tokens(exporter: str, tmp_path: Path) -> None:
    shapes = {"x": {0: "b", 1: "n"}, "mask": {0: "b", 1: "past+n"}, "past": {0: "b", 1: "past"}}
    report = onnxpatch.export(
        Step().eval(), example(2, 3, 5), tmp_path / "m.onnx", dynamic_shapes=shapes, exporter=exporter,
        output_names=["y", "present"], data=[example(3, 4, 0)],
    )  # fmt: skip
    moved = [check.sizes for check in report.checks if check.kind == "size"]
    assert any(sizes["past"] != 5 and sizes["n"] == 3 for sizes in moved)
    assert any(sizes["past"] == 5 and sizes["n"] != 3 for sizes in moved)
    assert report.refused == 0, report.first_refusal
    inputs = {value.name: value for value in onnx.load(tmp_path / "m.onnx").graph.input}
    named = [axis.dim_param for axis in inputs["mask"].type.tensor_type.shape.dim]
    assert named == ["b", "past+n"]


class Halves(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0], -1, 2).sum(-1) + F.pad(y, (1, 0))


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
@pytest.mark.parametrize("form", ["text", "Dim"])
def test_multiples_and_constants_as_text_and_as_dims(form: str, exporter: str) -> None:
    h = Dim("h", min=2, max=64)
    shapes = ({1: "2*h+2"}, {1: "h"}) if form == "text" else ({1: 2 * h + 2}, {1: h})
    args = (torch.randn(2, 8), torch.randn(2, 3))
    report = onnxpatch.export(Halves().eval(), args, None, dynamic_shapes=shapes, exporter=exporter)
    assert {check.sizes["h"] for check in report.checks} > {3, 4}
    assert report.refused == 0, report.first_refusal


class ForgetsThePast(Step):
    """A branch on the sum: the graph keeps the side that the example takes."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor, past: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return super().forward(x, mask, past) if mask.shape[1] != 9 else super().forward(2 * x, mask, past)


def test_a_graph_that_is_wrong_at_another_sum_is_refused() -> None:
    shapes = {"x": {0: "b", 1: "n"}, "mask": {0: "b", 1: "past+n"}, "past": {0: "b", 1: "past"}}
    with pytest.raises(onnxpatch.VerificationError):
        onnxpatch.export(
            ForgetsThePast().eval(), example(2, 3, 6), dynamic_shapes=shapes, exporter="trace", attempts="asked"
        )
