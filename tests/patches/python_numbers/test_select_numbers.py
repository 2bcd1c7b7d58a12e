"""An `if` on sizes whose sides only give names whole numbers, which are used behind it."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import onnxpatch

pytestmark = pytest.mark.exports

LENGTHS = (9, 8, 1, 5, 12, 16)


class SamePadding(nn.Module):
    """As TensorFlow pads a convolution of a stride, twice in a row."""

    def forward(self, x):
        for kernel, stride in ((3, 2), (5, 3)):
            length = x.shape[-1]
            if length % stride == 0:  # noqa: SIM108  # the form that is tried here
                missing = max(kernel - stride, 0)
            else:
                missing = max(kernel - (length % stride), 0)
            x = F.pad(x, (missing // 2, missing - missing // 2))
            x = F.avg_pool1d(x, kernel, stride)
        return x


class Expression(nn.Module):
    def forward(self, x):
        missing = 0 if x.shape[-1] % 4 == 0 else 4 - x.shape[-1] % 4
        return F.pad(x, (missing, 0)).reshape(*x.shape[:2], -1, 4)


class Several(nn.Module):
    """`elif`, two names, a name with a value before, and a test of two parts; in a loop, whose head comes next."""

    def forward(self, x):
        most, total = 3, 0
        for length in x.shape[1:]:
            if length > 10:
                before, behind = length - 10, 1
            elif length > 7 and length % 2 == 0:
                before, behind = 0, 4
                most = length
            else:
                before, behind = 2, 0
            total += before + 2 * behind
        return F.pad(x, (before, behind)) + most + total


def export(network, exporter, **options):
    data = [(torch.randn(2, 3, length),) for length in LENGTHS]
    shapes = ({2: "length"},)
    return onnxpatch.export(
        network().eval(), data[0], exporter=exporter, dynamic_shapes=shapes, data=data, attempts="asked", **options
    )


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
@pytest.mark.parametrize("network", [SamePadding, Expression, Several])
def test_the_numbers_are_chosen_at_every_size(network, exporter):
    report = export(network, exporter)
    assert report.ok
    assert sys.gettrace() is None  # nobody follows the lines any more
    with pytest.raises(onnxpatch.OnnxpatchError):
        export(network, exporter, exclude="size-*")
