"""torch.var in fewer nodes, in the form that a written out layer norm is recognized by."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import Proof, patch


class _Norm(torch.nn.Module):
    """A layer norm over channels, as many vision models write it."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(1, keepdim=True)) / (x.var(dim=1, unbiased=False, keepdim=True) + 1e-5).sqrt()


@patch(
    "torch.var",
    "torch.Tensor.var",
    name="variance",
    why="thirteen nodes for a variance that keeps its dimension: its shape is computed anew, from every size",
    link="https://github.com/pytorch/pytorch/blob/main/torch/_refs/__init__.py",
    exporters=("dynamo",),
    proof=Proof(
        build=_Norm,
        inputs=lambda: [(torch.randn(b, 6, *size),) for b, size in ((2, (4, 5)), (1, (7, 3)), (3, (1, 1)))],
        dynamic_shapes=({0: "b", 2: "h", 3: "w"},),
        leaner=("dynamo",),
    ),
)
def variance(
    original: Callable[..., Tensor],
    input: Tensor,
    dim: int | list[int] | None = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """The mean of the squares of x - mean(x), if the dimension is kept and nothing is corrected for."""
    corrected = unbiased if correction is None else correction != 0
    if dim is None or corrected or not keepdim or not input.is_floating_point():
        return NotImplemented
    centred = input - input.mean(dim, keepdim=True)
    return (centred * centred).mean(dim, keepdim=True)
