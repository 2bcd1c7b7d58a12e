"""`grid_sample` of volumes, which ONNX has from opset 20 on, and the TorchScript exporter does not write."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onnxpatch import Proof, patch
from onnxpatch.formulas.proof_models import Computes


class _Sampled(torch.nn.Module):
    def forward(self, x: Tensor, places: Tensor) -> tuple[Tensor, ...]:
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


def _flat(x: Tensor, places: Tensor) -> Tensor:
    return F.grid_sample(x[:, :, 0], places[:, 0, ..., :2], align_corners=False)


@patch(
    "torch.nn.functional.grid_sample",
    name="sampled-volumes",
    why="ONNX export of operator GridSample with 5D volumetric input",
    link="https://github.com/pytorch/pytorch/issues/92209",
    exporters=("trace",),
    proof=Proof(
        _Sampled,
        _volumes,
        ({0: "b", 2: "d", 3: "h", 4: "w"}, {0: "b", 1: "e"}),
        fails=("trace",),
        reason="5D volumetric",
        unchanged=lambda: Computes(_flat),
    ),
)
def sampled_volume(
    original: Callable[..., Tensor],
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
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
