"""An `if` on sizes that pads by a number which had a value before, and which is used behind it."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import onnxpatch

pytestmark = pytest.mark.exports

LENGTHS = (12, 3, 1, 4, 30)


class Reflected(nn.Module):
    """As EnCodec pads: what is too short to be reflected gets zeros at its end, which are cut off behind it."""

    def forward(self, x):
        length, most, extra = x.shape[-1], 3, 0
        if length <= most:
            extra = most - length + 1
            x = F.pad(x, (0, extra))
        padded = F.pad(x, (most, 2), "reflect")
        return padded[..., : padded.shape[-1] - extra]


class Counted(nn.Module):
    """What is padded counts afterwards, and is more than one cell from the first on."""

    def forward(self, x):
        length, missing = x.shape[-1], 0
        if length < 5:
            missing = 2 * (5 - length)
            x = F.pad(x, (missing, 0), value=1.0)
        return x.cumsum(-1) * (missing + 1)


class Shared(nn.Module):
    """As Demucs pads: zeros on both sides, by numbers that the body alone knows, and less to be reflected."""

    def forward(self, x):
        length, paddings = x.shape[-1], (4, 2)
        before, behind = paddings
        if length <= before:
            missing = before - length + 1
            right = min(behind, missing)
            left = missing - right
            paddings = (before - left, behind - right)
            x = F.pad(x, (left, right))
        return F.pad(x, paddings, "reflect")


class PadsAnyway(nn.Module):
    """Where the test is false this pads by what it had before: it is left to Python, and refused."""

    def forward(self, x):
        missing = 1
        if x.shape[-1] < 5:
            missing = 5 - x.shape[-1]
            x = F.pad(x, (missing, 0))
        return x + missing


def export(network, exporter, **options):
    data = [(torch.randn(2, length),) for length in LENGTHS]
    shapes = ({1: "length"},)
    return onnxpatch.export(
        network().eval(), data[0], exporter=exporter, dynamic_shapes=shapes, data=data, attempts="asked", **options
    )


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
@pytest.mark.parametrize("network", [Reflected, Counted, Shared])
def test_the_number_is_chosen_at_every_size(network, exporter):
    assert export(network, exporter).ok
    with pytest.raises(onnxpatch.OnnxpatchError):
        export(network, exporter, exclude="size-*")


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
def test_what_would_pad_where_the_test_is_false_is_refused(exporter):
    with pytest.raises(onnxpatch.OnnxpatchError):
        export(PadsAnyway, exporter)
