"""Sampling at coordinates: grids of a dynamic size, volumes, coordinates that are NaN or infinite, fold."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn import functional as F

from onnxpatch import missing, op, untraced
from onnxpatch.formulas.symbolic import divided_by_data, symbolic
from onnxpatch.formulas.windows import on_each_axis


def _axis(size: Any, align_corners: bool, like: Tensor) -> Tensor:
    """Positions of pixels in [-1, 1]: their centres, or with align_corners from edge to edge."""
    ticks = torch.arange(size, device=like.device)
    # Counted in the graph: a float of a dynamic size would be the example's.
    total = torch.ones_like(ticks).sum().to(like.dtype)
    ticks = ticks.to(like.dtype)
    if align_corners:
        # a single pixel is at 0
        return ticks * 2 / (total - 1).clamp(min=1) - torch.where(total > 1, 1.0, 0.0).to(like.dtype)
    return (ticks * 2 + 1) / total - 1


def _warped(x: Tensor, theta: Tensor) -> Tensor:
    grid = torch.nn.functional.affine_grid(theta, list(x.shape), align_corners=False)
    edges = torch.nn.functional.affine_grid(theta, list(x.shape), align_corners=True)
    return torch.nn.functional.grid_sample(x, (grid + edges) / 2, align_corners=False)


@op(
    "affine_grid",
    "affine_grid_generator",
    why="Exporting the operator 'aten::affine_grid_generator' to ONNX opset version 18 is not supported",
    reason="static shape|aten::affine_grid_generator",
    link="https://github.com/pytorch/pytorch/issues/30563",
    tries=lambda b, h, w: (torch.randn(b, 3, h, w), torch.randn(b, 2, 3)),
    sizes=((2, 8, 6), (3, 5, 9), (1, 4, 4)),
    case=_warped,
)
def affine_grid(theta: Tensor, size: Any, align_corners: bool | None = False) -> Tensor:
    """(N, 2, 3) or (N, 3, 4) and (N, C, [D,] H, W) to the grid (N, [D,] H, W, 2 or 3)."""
    axes = [_axis(n, bool(align_corners), theta) for n in list(size)[2:]]
    places = torch.meshgrid(*axes, indexing="ij")[::-1]  # x before y before z
    base = torch.stack((*places, torch.ones_like(places[0])), -1)
    flat = torch.matmul(base.reshape(1, -1, len(axes) + 1), theta.transpose(1, 2))
    return flat.reshape([-1, *list(size)[2:], len(axes)])


def _sampled(x: Tensor, places: Tensor) -> tuple[Tensor, ...]:
    return (
        F.grid_sample(x, places, align_corners=False),
        F.grid_sample(x, places, padding_mode="border", align_corners=True),
        F.grid_sample(x, places, "nearest", "border", False),
        F.grid_sample(x, places, mode="nearest", align_corners=True),
    )


def _volumes() -> list[tuple[Tensor, Tensor]]:
    # Some places lie outside of the volume.
    sizes = ((2, 4, 5, 6), (1, 6, 4, 5), (3, 2, 3, 7))
    return [(torch.randn(b, 3, d, h, w), torch.rand(b, d + 1, 4, 2, 3) * 3 - 1.5) for b, d, h, w in sizes]


@op(
    "grid_sample",
    name="sampled-volumes",
    why="ONNX export of operator GridSample with 5D volumetric input",
    reason="5D volumetric",
    link="https://github.com/pytorch/pytorch/issues/92209",
    exporters=("trace",),
    tries=_volumes,
    case=_sampled,
    unchanged=lambda x, places: F.grid_sample(x[:, :, 0], places[:, 0, ..., :2], align_corners=False),
)
def sampled_volume(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """The eight elements around each place, or the nearest one, gathered from the volume laid out in one axis."""
    if input.dim() != 5 or padding_mode == "reflection" or mode not in ("bilinear", "nearest"):
        return NotImplemented
    sizes: list[Any] = list(input.shape[2:])
    # The grid names the last axis first.
    places = [_place(grid[..., 2 - axis], sizes[axis], align_corners, padding_mode) for axis in range(3)]
    flat = input.flatten(2)
    if mode == "nearest":
        return _gathered(flat, [torch.round(place) for place in places], sizes, grid)
    total: Any = 0
    lowest = [torch.floor(place) for place in places]
    for corner in itertools.product((0, 1), repeat=3):
        at = [low + step for low, step in zip(lowest, corner, strict=True)]
        near = [1 - (place - one).abs() for place, one in zip(places, at, strict=True)]
        total = total + _gathered(flat, at, sizes, grid) * (near[0] * near[1] * near[2]).unsqueeze(1)
    return total


def _place(along: Tensor, size: Any, corners: bool | None, padding: str) -> Tensor:
    """From -1 ... 1 to the numbers of the elements of an axis."""
    place = (along + 1) * 0.5 * (size - 1) if corners else ((along + 1) * size - 1) * 0.5
    return _within(place, size) if padding == "border" else place


def _within(place: Tensor, size: Any) -> Tensor:
    place = torch.relu(place)
    return place - torch.relu(place - (size - 1))


def _gathered(flat: Tensor, at: list[Tensor], sizes: list[Any], grid: Tensor) -> Tensor:
    """The elements at whole numbers, 0 outside of the volume: (batch, channels, *places)."""
    index: Any = 0
    known: Any = None
    for one, size in zip(at, sizes, strict=True):
        inside = (one >= 0) & (one <= size - 1)
        known = inside if known is None else known & inside
        index = index * size + _within(one, size).to(torch.int64)
    # Each channel at the same places.
    index = index.flatten(1).unsqueeze(1).expand(-1, flat.shape[1], -1)
    found = flat.gather(2, index).unflatten(2, grid.shape[1:4])
    return found * known.unsqueeze(1).to(found.dtype)


def _projected(x: Tensor, matrix: Tensor) -> Tensor:
    """A picture seen through a projective map: at the horizon the denominator is 0."""
    ticks = torch.linspace(-1, 1, 5)
    places = torch.stack((*torch.meshgrid(ticks, ticks, indexing="xy"), torch.ones(5, 5)), -1)
    x_y_z = torch.matmul(places, matrix.transpose(1, 2)[:, None])
    return functional.grid_sample(x, x_y_z[..., :2] / x_y_z[..., 2:], align_corners=True)


def _views() -> list[tuple[Tensor, Tensor]]:
    # The second map has a horizon through the middle of the picture, the third is no map at all.
    views = [torch.eye(3).repeat(b, 1, 1) for b in (2, 3, 2)]
    views[1][0, 2] = torch.tensor([1.0, 0.0, 0.0])
    views[2][0] = 0
    return [
        (torch.randn(len(view), 3, *size), view) for view, size in zip(views, ((4, 6), (7, 5), (9, 9)), strict=True)
    ]


def _between(x: Tensor, matrix: Tensor) -> Tensor:
    places = x[:, :2].tanh().permute(0, 2, 3, 1)
    return functional.grid_sample(x, places / x.shape[1], align_corners=False) + matrix.sum()


@op(
    "grid_sample",
    name="lost-places",
    why="non-finite values differ: grid_sample at a place that is NaN or infinite is NaN, and GridSample makes 0 of it",
    reason="non-finite",
    link="https://github.com/pytorch/pytorch/issues/24823",
    tries=_views,
    case=_projected,
    unchanged=_between,
)
def lost_places(
    original: Callable[..., Tensor],
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Adds 0 times the places, which is NaN where they are not finite, if they were divided by data."""
    # Of the other ways of sampling eager makes a number too, or onnxruntime NaN.
    if mode != "bilinear" or padding_mode != "zeros" or input.dim() != 4 or not divided_by_data(grid):
        return NotImplemented
    sampled = original(input, grid, mode, padding_mode, align_corners)
    return sampled + (grid * 0).sum(-1).unsqueeze(1)


def _overlap(x: Tensor) -> tuple[Tensor, ...]:
    """Cuts out windows, weights them and folds them back; part of the edge is in no window."""
    whole = x.shape[-2:]
    apart = F.fold(F.unfold(x, 2, stride=2).softmax(1), whole, 2, stride=2)
    over = F.fold(F.unfold(x, (3, 2), padding=1, stride=2), (whole[0], whole[1]), (3, 2), padding=1, stride=2)
    return apart, over, F.fold(F.unfold(x, 2, dilation=2), output_size=whole, kernel_size=2, dilation=2)


@op(
    "fold",
    name="fold-dynamic-size",
    why="TypeError: 'NoneType' object is not subscriptable (Occurred when translating col2im); the size of the example "
    "stays in the graph",
    reason="col2im",
    link="https://github.com/pytorch/pytorch/issues/107588",
    exporters=("trace",),
    tries=lambda b, size: torch.randn(b, 3, *size),
    sizes=((2, (8, 9)), (1, (13, 6)), (3, (5, 5))),
    case=_overlap,
    # The stand-in calls unflatten, whose traced shape the exporter makes static without that patch.
    beside=("composites",),
)
def fold(
    input: Tensor,
    output_size: object,
    kernel_size: object,
    dilation: object = 1,
    padding: object = 0,
    stride: object = 1,
) -> Tensor:
    """(N, C * kh * kw, L) to (N, C, H, W). A transposed convolution adds each column as a patch."""
    given = (output_size, kernel_size, dilation, padding, stride)
    sizes, kernel, dilation, padding, stride = (on_each_axis(one, 2) for one in given)
    if input.dim() != 3 or not any(symbolic(size) for size in sizes):
        return NotImplemented
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    counts = [(n + 2 * p - span) // s + 1 for n, p, span, s in zip(sizes, padding, spans, stride, strict=True)]
    entries = kernel[0] * kernel[1]
    columns = input.reshape([input.shape[0], input.shape[1], counts[0], counts[1]])
    maps = columns.unflatten(1, (-1, entries)).flatten(0, 1)  # each channel is folded separately
    # Each entry of a column lays its value at its own place of the patch.
    weight = torch.eye(entries, dtype=input.dtype, device=input.device).reshape(entries, 1, *kernel)
    laid = F.conv_transpose2d(maps, weight, stride=tuple(stride), dilation=tuple(dilation))
    for axis, (size, span, step, margin) in enumerate(zip(sizes, spans, stride, padding, strict=True), start=2):
        # Rows behind the last window are in none, and are zeros in the result.
        laid = F.pad(laid, [0, step - 1 + span] if axis == 3 else [0, 0, 0, step - 1 + span])
        laid = laid.narrow(axis, margin, size)
    return laid.unflatten(0, (input.shape[0], -1)).squeeze(2)


op(
    "grid_sampler_2d",
    why=untraced("aten::grid_sampler_2d"),
    tries=lambda b, h, w: (torch.randn(b, 2, h, w), torch.rand(b, 3, w, 2)),
    case=lambda x, grid: torch.grid_sampler_2d(x, grid, 0, 1, True),
    to=lambda x, grid, mode, pad, corners: _by_numbers(x, grid, mode, pad, corners),
)


op(
    "grid_sampler_3d",
    why=missing("aten::grid_sampler_3d"),
    beside=("sampled-volumes",),
    tries=lambda b, h, w: (torch.randn(b, 2, h, w, 3), torch.rand(b, 3, w, 2, 3)),
    case=lambda x, grid: torch.grid_sampler_3d(x, grid, 0, 1, True),
    to=lambda x, grid, mode, pad, corners: _by_numbers(x, grid, mode, pad, corners),
)


def _by_numbers(x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> Tensor:
    names = ("bilinear", "nearest", "bicubic")[mode], ("zeros", "border", "reflection")[padding]
    return functional.grid_sample(x, grid, *names, align_corners=corners)
