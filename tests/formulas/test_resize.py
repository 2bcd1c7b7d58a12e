"""The resize by two matrices is torch's own, to 1e-5: every mode, antialias, alignment, size, offset and dtype."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional as F

from onnxpatch.formulas.resize import Axis, pool_members, resize

MODES = ["nearest", "nearest-exact", "bilinear", "bicubic", "area"]
SMOOTH = ["bilinear", "bicubic"]
TABLES = [(7, 5), (37, 37), (1, 4), (16, 16)]
GRIDS = [(16, 16), (37, 49), (74, 74), (5, 3), (1, 1), (7, 5), (2, 40), (37, 37)]


def worst(mode, scales=None, **options) -> float:
    """Largest difference from eager over tables and grids; `scales`: offset added to the size before division."""
    found = 0.0
    for table, grid in itertools.product(TABLES, GRIDS):
        x = torch.randn(1, 6, *table)
        if scales is None:
            want, axes = F.interpolate(x, size=grid, mode=mode, **options), [Axis(size) for size in grid]
        else:
            factor = tuple((size + scales) / extent for size, extent in zip(grid, table, strict=True))
            want = F.interpolate(x, scale_factor=factor, mode=mode, **options)
            axes = [Axis(size, scale) for size, scale in zip(grid, factor, strict=True)]
        for channels_last in (False, True):
            got = resize(x, axes, mode, channels_last=channels_last, **options)
            found = max(found, float((got - want).abs().max()))
    return found


@pytest.mark.parametrize("mode", MODES)
def test_sizes(mode):
    assert worst(mode) < 1e-5


@pytest.mark.parametrize("mode", SMOOTH)
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("align_corners", [False, True])
def test_smooth_modes(mode, antialias, align_corners):
    assert worst(mode, antialias=antialias, align_corners=align_corners) < 1e-5


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "area"])
@pytest.mark.parametrize("offset", [0.1, 0.03])
def test_the_offset_of_a_scale_moves_the_sampling_points(mode, offset):
    assert worst(mode, scales=offset) < 1e-5


@pytest.mark.parametrize("mode", SMOOTH)
def test_offset_with_antialias(mode):
    assert worst(mode, scales=0.1, antialias=True) < 1e-5


def test_the_offset_is_no_rounding_noise():
    x = torch.randn(1, 4, 5, 5)
    plain, moved = (resize(x, [Axis(8, scale), Axis(8, scale)], "bicubic") for scale in (None, 8.1 / 5))
    assert (plain - moved).abs().max() > 1e-3


def test_a_native_axis_is_copied():
    x, scale = torch.randn(1, 4, 5, 5), 5.1 / 5
    native, other = torch.tensor(True), torch.tensor(False)
    assert torch.equal(resize(x, [Axis(5, scale, native)] * 2, "bicubic"), x)
    assert not torch.allclose(resize(x, [Axis(5, scale, other)] * 2, "bicubic"), x, atol=1e-3)


@pytest.mark.parametrize(("mode", "size"), [("linear", (9,)), ("trilinear", (8, 4, 9))])
def test_one_and_three_axes(mode, size):
    x = torch.randn(2, 3, 5, 6, 7)[(..., *([0] * (3 - len(size))), *([slice(None)] * len(size)))]
    assert torch.allclose(resize(x, [Axis(s) for s in size], mode), F.interpolate(x, size=size, mode=mode), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_dtypes(dtype):
    x = torch.randn(1, 4, 6, 6).to(dtype)
    got, want = resize(x, [Axis(9), Axis(4)], "bicubic"), F.interpolate(x, size=(9, 4), mode="bicubic")
    assert got.dtype == dtype
    assert torch.allclose(got.double(), want.double(), atol=float(2 * torch.finfo(dtype).eps * 4))


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (7, 5), (6, 2), (9, 11)])
def test_adaptive_pooling(size):
    x = torch.randn(2, 3, 7, 5)
    assert torch.allclose(resize(x, [Axis(s) for s in size], "area"), F.adaptive_avg_pool2d(x, size), atol=1e-6)
    rows = pool_members(torch.arange(size[0]), torch.arange(7))
    ones = F.adaptive_max_pool1d(torch.eye(7)[None], size[0])[0].T > 0
    assert torch.equal(rows, ones)


def test_an_unknown_mode_is_refused():
    with pytest.raises(KeyError):
        resize(torch.randn(1, 1, 2, 2), [Axis(3), Axis(3)], "lanczos")
