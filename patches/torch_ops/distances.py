"""torch.cdist, which has no ONNX operator."""

from __future__ import annotations

import torch

from onnxpatch import Proof, patch
from onnxpatch.formulas.distances import euclidean, is_many


class _Distances(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.cdist(x, y), torch.cdist(x, y, p=1), torch.cdist(x, x, p=float("inf"))


@patch(
    "torch.cdist",
    name="cdist",
    why="No ONNX function found for aten._cdist_forward; NaN for other norms than 2 from the TorchScript exporter",
    link="https://github.com/pytorch/pytorch/issues/135160",
    proof=Proof(
        build=_Distances,
        inputs=lambda: [(torch.randn(b, n, 6), torch.randn(b, m, 6)) for b, n, m in ((2, 5, 4), (3, 9, 2), (1, 4, 7))],
        dynamic_shapes=({0: "batch", 1: "rows"}, {0: "batch", 1: "columns"}),
        fails=("dynamo", "trace"),
        reason="_cdist_forward|non-finite",
    ),
)
def cdist(
    original: object, x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0, compute_mode: object = None
) -> torch.Tensor:
    """Computes p = 2 by one matrix product in float64, and other norms from all differences."""
    if p == 2:
        # Of that many rows torch itself takes the product in float32 that both exporters write.
        exact = compute_mode == "donot_use_mm_for_euclid_dist"
        return euclidean(x1, x2) if exact or not (is_many(x1) or is_many(x2)) else NotImplemented
    gap = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    gap = gap.abs()
    if p == float("inf"):
        return gap.amax(-1)
    if p == 0:
        # The "norm" 0 counts what differs.
        return (gap > 0).to(gap.dtype).sum(-1)
    return gap.sum(-1) if p == 1 else gap.pow(p).sum(-1).pow(1 / p)
