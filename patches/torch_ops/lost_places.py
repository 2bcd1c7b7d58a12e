"""grid_sample at places that are NaN or infinite: NaN in eager, a number in onnxruntime."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import Proof, patch
from onnxpatch.formulas.proof_models import Computes
from onnxpatch.formulas.tracing import divided_by_data


class _Projected(torch.nn.Module):
    """A picture seen through a projective map: at the horizon the denominator is 0."""

    def forward(self, x: Tensor, matrix: Tensor) -> Tensor:
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


@patch(
    "torch.nn.functional.grid_sample",
    name="lost-places",
    why="non-finite values differ: grid_sample at a place that is NaN or infinite is NaN, and GridSample makes 0 of it",
    link="https://github.com/pytorch/pytorch/issues/24823",
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Projected,
        _views,
        ({0: "batch", 2: "height", 3: "width"}, {0: "batch"}),
        fails=("dynamo", "trace"),
        reason="non-finite",
        unchanged=lambda: Computes(_between),
    ),
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
