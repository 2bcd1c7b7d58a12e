"""Two axes with one name are one size for torch.export before the forward compares them."""

import pytest
import torch
from torch import Tensor, nn

import onnxpatch

pytestmark = pytest.mark.exports


class Modulated(nn.Module):
    """Shifts tokens by what a second input says; its batch size is taken from the first one."""

    def forward(self, x: Tensor, shift: Tensor) -> Tensor:
        parts = shift.view(x.shape[0], 2, -1)
        return x * parts[:, :1] + parts[:, 1:]


def test_axes_with_one_name_are_one_size(tmp_path):
    model = Modulated().eval()
    report = onnxpatch.export(
        model,
        (torch.randn(2, 5, 3), torch.randn(2, 6)),
        tmp_path / "m.onnx",
        dynamic_shapes=({0: "batch", 1: "length"}, {0: "batch"}),
        exporter="dynamo",
        attempts="asked",
    )
    assert report.ok
    assert not model._forward_pre_hooks
