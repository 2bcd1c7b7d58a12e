"""Running products and running sums of exponentials, by doubling: no tensor of length x length."""

from __future__ import annotations

from collections.abc import Callable

import torch

from onnxpatch import Proof, patch
from onnxpatch.formulas import scans


class _Running(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.cumprod(x, 1), torch.logcumsumexp(x * 200, dim=1)


@patch(
    "torch.cumprod",
    "torch.Tensor.cumprod",
    "torch.logcumsumexp",
    "torch.Tensor.logcumsumexp",
    name="running-products",
    why="Exporting the operator 'aten::cumprod' to ONNX is not supported; logcumsumexp of wide inputs is inf",
    link="https://github.com/pytorch/pytorch/issues/126972",
    exporters=("dynamo", "trace"),
    proof=Proof(
        build=_Running,
        inputs=lambda: [(torch.randn(b, n, 3),) for b, n in ((2, 6), (3, 11), (1, 1))],
        dynamic_shapes=({0: "batch", 1: "length"},),
        fails=("dynamo", "trace"),
        reason="prims.prod|aten::cumprod",
    ),
)
def running_product(
    original: Callable[..., torch.Tensor], input: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """log2(length) steps, each of which combines every entry with the one 1, 2, 4, ... places before it."""
    if not (dtype or input.dtype).is_floating_point or input.dim() == 0:
        return NotImplemented
    x = input if dtype is None else input.to(dtype)
    return scans.cumprod(x, dim) if original.__name__ == "cumprod" else _logcumsumexp(x, dim)


def _logcumsumexp(x: torch.Tensor, dim: int) -> torch.Tensor:
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    return scans.logcumsumexp(wide, dim).to(x.dtype)
