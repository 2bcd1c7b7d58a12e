"""Sampling grids of a dynamic size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from onnxpatch import Proof, patch


def _axis(size: Any, align_corners: bool, like: torch.Tensor) -> torch.Tensor:
    """Positions of pixels in [-1, 1]: their centres, or with align_corners from edge to edge."""
    ticks = torch.arange(size, device=like.device)
    # Counted in the graph: a float of a dynamic size would be the example's.
    total = torch.ones_like(ticks).sum().to(like.dtype)
    ticks = ticks.to(like.dtype)
    if align_corners:
        # a single pixel is at 0
        return ticks * 2 / (total - 1).clamp(min=1) - torch.where(total > 1, 1.0, 0.0).to(like.dtype)
    return (ticks * 2 + 1) / total - 1


class _Warped(torch.nn.Module):
    def forward(self, x: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        grid = torch.nn.functional.affine_grid(theta, list(x.shape), align_corners=False)
        edges = torch.nn.functional.affine_grid(theta, list(x.shape), align_corners=True)
        return torch.nn.functional.grid_sample(x, (grid + edges) / 2, align_corners=False)


@patch(
    "torch.nn.functional.affine_grid",
    "torch.affine_grid_generator",
    name="affine-grid",
    why="Exporting the operator 'aten::affine_grid_generator' to ONNX opset version 18 is not supported",
    link="https://github.com/pytorch/pytorch/issues/30563",
    proof=Proof(
        build=_Warped,
        inputs=lambda: [
            (torch.randn(b, 3, h, w), torch.randn(b, 2, 3)) for b, h, w in ((2, 8, 6), (3, 5, 9), (1, 4, 4))
        ],
        dynamic_shapes=({0: "batch", 2: "height", 3: "width"}, {0: "batch"}),
        fails=("trace", "dynamo"),
        reason="static shape|aten::affine_grid_generator",
    ),
)
def affine_grid(
    original: Callable[..., torch.Tensor], theta: torch.Tensor, size: Any, align_corners: bool | None = False
) -> torch.Tensor:
    """(N, 2, 3) or (N, 3, 4) and (N, C, [D,] H, W) to the grid (N, [D,] H, W, 2 or 3)."""
    axes = [_axis(n, bool(align_corners), theta) for n in list(size)[2:]]
    places = torch.meshgrid(*axes, indexing="ij")[::-1]  # x before y before z
    base = torch.stack((*places, torch.ones_like(places[0])), -1)
    flat = torch.matmul(base.reshape(1, -1, len(axes) + 1), theta.transpose(1, 2))
    return flat.reshape([-1, *list(size)[2:], len(axes)])
