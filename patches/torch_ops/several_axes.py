"""`x.squeeze((0, 2))`: several axes at once, which the TorchScript exporter has no form for."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas.proof_models import Computes


class _Squeezed(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = x[:, None, :, None]
        return y.squeeze((1, 3)) * 2, torch.squeeze(y, dim=(-1, 1)) + 1, y.squeeze((1, 4))


@patch(
    "torch.squeeze",
    "torch.Tensor.squeeze",
    name="squeeze-of-several-axes",
    why="only one element tensors can be converted to Python scalars",
    link="https://github.com/pytorch/pytorch/issues/104015",
    exporters=("trace",),
    proof=Proof(
        _Squeezed,
        lambda: [(torch.randn(b, n, 3),) for b, n in ((2, 5), (3, 9), (2, 2))],
        ({0: "b", 1: "n"},),
        fails=("trace",),
        reason="Python scalars",
        unchanged=lambda: Computes(lambda x: x.unsqueeze(1).squeeze(1) * 2),
    ),
)
def squeeze(original: Callable[..., Tensor], input: Tensor, dim: object = None) -> Tensor:
    """Takes one axis after the other, the last first."""
    if not isinstance(dim, tuple | list):
        return NotImplemented
    for axis in sorted((axis % input.dim() for axis in dim), reverse=True):
        input = original(input, axis)
    return input
