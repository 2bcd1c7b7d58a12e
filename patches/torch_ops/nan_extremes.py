"""`fmax` and `fmin`: the larger and smaller of two, where NaN counts as no number."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas.proof_models import Computes


class _Extremes(torch.nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        holes = torch.where(x > 0.5, torch.nan, x)
        return torch.fmax(holes, y), holes.fmin(y[:, :1]), torch.fmax(x.long(), y.long())


@patch(
    "torch.fmax",
    "torch.Tensor.fmax",
    "torch.fmin",
    "torch.Tensor.fmin",
    name="extremes-beside-nan",
    why="No ONNX function found for <OpOverload(op='prims.fmax', overload='default')>; Exporting the operator "
    "'aten::fmax' to ONNX opset version 18 is not supported",
    link="https://github.com/pytorch/pytorch/issues/126972",
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Extremes,
        lambda: [(torch.randn(b, n), torch.randn(b, n)) for b, n in ((2, 5), (3, 9), (1, 2))],
        ({0: "b", 1: "n"}, {0: "b", 1: "n"}),
        fails=("dynamo", "trace"),
        reason="fmax|fmin",
        unchanged=lambda: Computes(torch.maximum),
    ),
)
def extreme(original: Callable[..., Tensor], input: Tensor, other: Tensor) -> Tensor:
    """The one that is a number, else the larger or smaller one."""
    chosen = torch.maximum(input, other) if original.__name__ == "fmax" else torch.minimum(input, other)
    if not chosen.is_floating_point():
        return chosen
    return torch.where(torch.isnan(input), other, torch.where(torch.isnan(other), input, chosen))
