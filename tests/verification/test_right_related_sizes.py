"""A graph that is right wherever two sizes are related says so, and is delivered so with bounds="narrow"."""

from __future__ import annotations

import onnx
import pytest
import torch
from torch import nn

import onnxpatch

pytestmark = pytest.mark.exports


class Decoder(nn.Module):
    """Takes masks of any length, and is meant for those of old and new tokens together."""

    def forward(self, new: torch.Tensor, old: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([old, new], 1)
        if mask.shape[1] == joined.shape[1]:
            return (joined * mask)[:, -new.shape[1] :]
        return new * mask.sum()


def test_a_sum_of_sizes_is_said_first_and_delivered(tmp_path) -> None:
    args = torch.randn(2, 4), torch.randn(2, 5), torch.randn(2, 9)
    free = {1: "n"}, {1: "p"}, {1: "t"}
    call = {"dynamic_shapes": free, "exporter": "trace", "attempts": "asked"}
    with pytest.raises(onnxpatch.VerificationError) as caught:
        onnxpatch.export(Decoder().eval(), args, None, **call)
    (told,) = caught.value.report.right_within
    assert told.text.startswith('right wherever t = n+p (12 of 12): write "n+p" for t')
    assert (told.dimension, told.declare) == ("t", "n+p")
    file = tmp_path / "m.onnx"
    report = onnxpatch.export(Decoder().eval(), args, file, bounds="narrow", **call)
    assert report.ok and report.bounds == {"t": "t = n+p"} and len({one.sizes["t"] for one in report.checks}) > 4
    names = [dim.dim_param for one in onnx.load(file).graph.input for dim in one.type.tensor_type.shape.dim]
    assert names[-1] == "n+p"
