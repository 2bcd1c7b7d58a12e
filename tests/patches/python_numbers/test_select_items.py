"""An `if` on sizes that puts other numbers into a list: pads of UNets, windows no larger than the image."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import onnxpatch

pytestmark = pytest.mark.exports

SIZES = ((8, 12), (7, 12), (9, 5), (4, 3))


class Padded(nn.Module):
    """MONAI's UNets: what came up is padded by one where its skip was odd."""

    def forward(self, image):
        up = F.interpolate(F.avg_pool2d(image, 2).square(), scale_factor=2.0)
        pads = [0] * 4
        for i in range(2):
            if image.shape[-i - 1] != up.shape[-i - 1]:
                pads[i * 2 + 1] = 1
        return torch.cat([F.pad(up, pads, "replicate"), image], 1)


class Windows(nn.Module):
    """Video Swin's windows: as large as the image where it is smaller, and not shifted then."""

    def window(self, sizes, window, shift=None):
        used, shifts = list(window), None if shift is None else list(shift)
        for i in range(len(sizes)):
            if sizes[i] <= window[i]:
                used[i] = sizes[i]
                if shifts is not None:
                    shifts[i] = 0
        return used, shifts

    def forward(self, image):
        batch, channels, height, width = image.shape
        (a, b), shifts = self.window((height, width), (7, 7), (3, 3))
        padded = F.pad(image, (0, (b - width % b) % b, 0, (a - height % a) % a))
        groups = padded.reshape(batch, channels, padded.shape[2] // a, a, padded.shape[3] // b, b)
        return groups.amax((3, 5)) * self.window((height,), (4,))[0][0] + shifts[1]


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
@pytest.mark.parametrize("network", [Padded, Windows])
def test_elements_are_chosen_at_every_size(network, exporter):
    data = [(torch.randn(2, 3, *size),) for size in SIZES]
    model, shapes = network().eval(), ({2: "h", 3: "w"},)
    assert onnxpatch.export(model, data[0], exporter=exporter, dynamic_shapes=shapes, data=data, attempts="asked").ok
    with pytest.raises(onnxpatch.VerificationError):
        onnxpatch.export(
            model, data[0], exporter=exporter, dynamic_shapes=shapes, data=data, attempts="asked", exclude="size-*"
        )
