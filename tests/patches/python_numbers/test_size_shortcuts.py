"""Shortcuts past a resize in forms that no patch's proof has; timm's ViTs, exported from the size they are made for."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import onnxpatch

pytestmark = pytest.mark.exports

SLOW = pytest.mark.slow
SIZES = ((16, 16), (28, 36), (8, 32), (20, 20))  # 8 x 32 has as many patches as 16 x 16


def resized(table, height, width, old=None):
    """The shortcut is two returns inside an `if` that alone decides nothing, as in timm."""
    if not torch.jit.is_scripting() and table.shape[1] == height * width:
        if old is not None and old[0] == height and old[1] == width:
            return table
        if old is None and height == width:
            return table
    side = int(table.shape[1] ** 0.5)
    grid = table.reshape(1, side, side, -1).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, size=(height, width), mode="bicubic", antialias=True)
    return grid.permute(0, 2, 3, 1).reshape(1, height * width, -1)


class Nested(nn.Module):
    def __init__(self, old):
        super().__init__()
        self.table, self.old = nn.Parameter(torch.randn(1, 16, 6)), old

    def forward(self, image):
        tokens = F.avg_pool2d(image, 4).flatten(2).transpose(1, 2)
        return tokens.mean(2, keepdim=True) + resized(self.table, image.shape[2] // 4, image.shape[3] // 4, self.old)


@pytest.mark.parametrize(
    ("exporter", "old"),
    [("trace", None), ("trace", (4, 4)), *(pytest.param("dynamo", old, marks=SLOW) for old in (None, (4, 4)))],
)
def test_returns_nested_in_an_if(exporter, old):
    model = Nested(old).eval()
    data = [(torch.randn(2, 3, *size),) for size in SIZES]
    shapes = ({2: "h", 3: "w"},)
    assert onnxpatch.export(model, data[0], exporter=exporter, dynamic_shapes=shapes, data=data).ok


VITS = {
    "vit_tiny_patch16_224": 64,
    "vit_base_patch16_siglip_224": 64,
    "vit_small_patch14_dinov2": 56,
    "deit_tiny_distilled_patch16_224": 64,
    "vit_pe_core_tiny_patch16_384": 64,
    "eva02_tiny_patch14_224": 56,
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "vit_tiny_patch16_224" else SLOW) for name in VITS]
)
def test_timm_from_the_size_a_model_is_made_for(name):
    timm = pytest.importorskip("timm", reason="the models under test")
    options = dict(embed_dim=24, depth=1, num_heads=2, num_classes=5, dynamic_img_size=True)
    model = timm.create_model(name, img_size=VITS[name], **options).eval()
    for parameter in model.parameters():
        if parameter.dim() < 3:  # new norms and biases hide errors
            nn.init.normal_(parameter, std=0.3)
    patch = 14 if VITS[name] == 56 else 16
    data = [(torch.randn(1, 3, rows * patch, columns * patch),) for rows, columns in ((2, 8), (3, 5), (6, 6))]
    example = (torch.randn(2, 3, VITS[name], VITS[name]),)
    shapes = ({0: "b", 2: "h", 3: "w"},)
    report = onnxpatch.export(model, example, exporter="trace", dynamic_shapes=shapes, data=data, max_probes=6)
    assert report.ok


class OddSizes(nn.Module):
    """A UNet that hands the sizes of its skips on to its resizes, where they are not multiples of four."""

    def forward(self, image):
        upsample_size = False
        for size in image.shape[-2:]:
            if size % 4 != 0:
                upsample_size = True
                break
        skips = [image]
        for _ in range(2):
            skips.append(F.avg_pool2d(skips[-1], 2, ceil_mode=True))
        x = skips.pop().square()
        while skips:
            skip = skips.pop()
            size = skip.shape[2:] if upsample_size else None
            x = F.interpolate(x, size=size, scale_factor=None if upsample_size else 2.0, mode="nearest") + skip
        return x


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
def test_a_flag_that_hands_sizes_on_to_resizes_is_set(exporter):
    data = [(torch.randn(2, 3, *size),) for size in ((16, 16), (13, 18), (8, 32), (5, 7))]
    shapes = ({2: "h", 3: "w"},)
    report = onnxpatch.export(
        OddSizes().eval(), data[0], exporter=exporter, dynamic_shapes=shapes, data=data, attempts="asked"
    )
    assert report.ok


def padded_to(x, multiple, mode="reflect", value=0.0):
    height, width = x.shape[2:]
    pad_h = (multiple - height % multiple) % multiple
    pad_w = (multiple - width % multiple) % multiple
    if pad_h or pad_w:
        return F.pad(x, (0, pad_w, 0, pad_h), mode, value)
    return x


class Windowed(nn.Module):
    """Windows of four, of what is padded where it has to be, as spandrel's models are written."""

    def forward(self, image):
        padded = padded_to(image, 4)
        return F.avg_pool2d(padded, 4).exp(), padded.unflatten(2, (-1, 4)).amax(3)


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
def test_a_padded_input_is_returned_at_every_size(exporter):
    data = [(torch.randn(2, 3, *size),) for size in ((8, 8), (13, 18), (5, 7), (12, 4))]
    shapes = ({2: "h", 3: "w"},)
    assert onnxpatch.export(
        Windowed().eval(), data[0], exporter=exporter, dynamic_shapes=shapes, data=data, attempts="asked"
    ).ok


class Warned(nn.Module):
    def forward(self, x):
        if x.shape[1] != 3:
            warnings.warn(f"made for 3, not {x.shape[1]}", stacklevel=2)
        return x.softmax(1)


def test_an_if_that_only_warns_fixes_no_size(tmp_path):
    report = onnxpatch.export(
        Warned(), (torch.randn(2, 3),), tmp_path / "m.onnx", exporter="dynamo", attempts="asked",
        dynamic_shapes=({0: "b", 1: "c"},),
    )  # fmt: skip
    assert report.ok and {check.sizes.get("c") for check in report.checks} > {3}
