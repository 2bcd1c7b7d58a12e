"""Sizes that are the same for all inputs are plain numbers under trace, where every size is a tensor."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import onnxpatch

pytestmark = pytest.mark.exports

SHAPES = ({0: "batch", 2: "height", 3: "width"},)


def images(*sizes):
    return [(torch.randn(batch, 8, height, width),) for batch, height, width in sizes]


class Looked(nn.Module):
    """The number of channels as a key, a name, a type and a count."""

    def __init__(self):
        super().__init__()
        self.scales = {8: 2.0, 16: 3.0}
        self.layers = nn.ModuleDict({"8": nn.Conv2d(8, 8, 1)})

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers[str(int(x.shape[1]))](x) * self.scales[int(x.shape[1])]
        if isinstance(x.shape[1], int):
            x = x + 1
        return torch.stack([x[:, i] * i for i in range(int(x.shape[1]))])


class Configured(nn.Module):
    """Arguments that ONNX wants as constants, behind layers."""

    def __init__(self):
        super().__init__()
        self.mix, self.kernel = nn.Conv2d(8, 16, 1), nn.Parameter(torch.randn(1, 1, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.mix(x)
        channels = int(x.size(1))
        x = F.conv2d(x, self.kernel.expand(channels, 1, 3, 3), groups=channels, padding=1)
        x = F.group_norm(x, int(x.shape[1] // 4))
        side = int(x.shape[1] ** 0.5) // 2
        return F.layer_norm(F.unfold(x, side, stride=side).mT, (int(x.shape[1]) * side * side,))


@pytest.mark.parametrize("model", [Looked, Configured])
def test_a_size_that_never_changes_is_a_number(model):
    data = images((2, 6, 4), (1, 10, 2), (3, 2, 12))
    report = onnxpatch.export(
        model().eval(), data[0], exporter="trace", dynamic_shapes=SHAPES, data=data, attempts="asked"
    )
    assert report.ok


class Square(nn.Module):
    """A table that fits the example's number of tokens and no other, and the side of the square that they make."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(1, 16, 4))

    def forward(self, x: Tensor) -> Tensor:
        both = x + self.table if x.shape[1] == 16 else x
        side = int(both.shape[1] ** 0.5)
        return both.mT.reshape(x.shape[0], 4, side, side).cumsum(-1)


def test_what_fits_the_example_alone_fixes_no_size():
    data = [(torch.randn(2, n, 4),) for n in (16, 25, 4)]
    shapes = ({0: "batch", 1: "n"},)
    assert onnxpatch.export(Square().eval(), data[0], exporter="trace", dynamic_shapes=shapes, data=data).ok
