"""bfloat16 times whole numbers: the slopes of ALiBi."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import Proof, patch


class _Slopes(torch.nn.Module):
    def forward(self, mask: Tensor) -> Tensor:
        places = (mask.cumsum(-1) - 1) * mask
        slopes = torch.tensor([0.25, 0.0625, 0.3])
        return (slopes[..., None].bfloat16() * places[:, None]).to(torch.float32)


@patch(
    "torch.mul",
    "torch.Tensor.mul",
    "torch.Tensor.__mul__",
    "torch.Tensor.__rmul__",
    name="bfloat16-times-integers",
    why="Type 'tensor(complex128)' of input parameter of operator (Mul) is invalid: the exporter takes bfloat16 for "
    "it; Could not find an implementation for Mul(14): onnxruntime multiplies no bfloat16 on the CPU",
    link="https://github.com/pytorch/pytorch/issues/129064",
    exporters=("dynamo", "trace"),
    proof=Proof(
        build=_Slopes,
        inputs=lambda: [(torch.ones(b, n, dtype=torch.int64),) for b, n in ((2, 5), (3, 300), (1, 1))],
        dynamic_shapes=({0: "batch", 1: "length"},),
        fails=("trace",),
        exporters=("dynamo",),
        reason="complex128",
    ),
)
def times_integers(original: Callable[..., Tensor], input: Tensor, other: Tensor) -> Tensor:
    """Multiplies in float32, where the product of two bfloat16 numbers is exact, and rounds once."""
    if not isinstance(other, Tensor) or not isinstance(input, Tensor):
        return NotImplemented
    if torch.bfloat16 not in (input.dtype, other.dtype) or input.is_floating_point() == other.is_floating_point():
        return NotImplemented
    # Whole numbers are rounded to bfloat16 first, as eager promotes them.
    return (input.bfloat16().float() * other.bfloat16().float()).bfloat16()
