"""Batch norm with the statistics of the batch, `F.batch_norm(x, None, None, training=True)`, as mean and variance."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from onnxpatch import Proof, patch


class _Standardised(torch.nn.Module):
    """Standardizes weights, as some convolutions do, and maps by their own statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(3, track_running_stats=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return F.batch_norm(x, None, None, training=True), self.norm(x)


@patch(
    "torch.nn.functional.batch_norm",
    name="batch-statistics",
    why="AssertionError: batch_size and channel_size must be non-None; the exported graph normalises by zeros and ones",
    link="https://github.com/pytorch/pytorch/issues/75252",
    exporters=("trace", "dynamo"),
    proof=Proof(
        build=_Standardised,
        inputs=lambda: [(torch.randn(b, 3, *size) * 2 + 1,) for b, size in ((2, (8, 9)), (1, (13, 6)), (3, (5, 5)))],
        dynamic_shapes=({0: "b", 2: "h", 3: "w"},),
        fails=("trace",),
        reason="batch_size and channel_size",
    ),
)
def batch_norm(
    original: Callable[..., Tensor],
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Mean and variance over batch and positions. A call with running statistics is left to torch."""
    if not training or running_mean is not None or running_var is not None:
        return NotImplemented
    axes = [0, *range(2, input.dim())]
    centred = input - input.mean(axes, keepdim=True)
    found = centred / torch.sqrt((centred * centred).mean(axes, keepdim=True) + eps)
    shape = [1, -1] + [1] * (input.dim() - 2)
    found = found if weight is None else found * weight.reshape(shape)
    return found if bias is None else found + bias.reshape(shape)
