"""F.gelu in the order of operations that onnxruntime has one kernel for, at opsets without the operator Gelu."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import Proof, exporting, patch
from onnxpatch.formulas.nodes import target_opset

_OPSET = 20  # the first with Gelu
_CUBE = 0.044715  # of torch's approximation by tanh


class _Gelus(torch.nn.Module):
    """Both forms, each between two other operations."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        exact = torch.nn.functional.gelu(x + 1) * 2
        return exact, torch.nn.functional.gelu(x - 1, approximate="tanh") * 2


@patch(
    "torch.nn.functional.gelu",
    name="gelu",
    why="five or eight passes over the tensor: the exporters multiply by 0.5 in a place where onnxruntime does not "
    "recognize GELU, and computes each operation by itself",
    link="https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/optimizer/gelu_fusion.cc",
    exporters=("dynamo", "trace"),
    proof=Proof(
        build=_Gelus,
        inputs=lambda: [(torch.randn(b, 64, 384),) for b in (2, 3, 16)],
        dynamic_shapes=({0: "batch"},),
        slower={"dynamo": 1.4, "trace": 1.2},
    ),
)
def gelu(original: Callable[..., Tensor], input: Tensor, *, approximate: str = "none") -> Tensor:
    """x (1 + erf(x / sqrt 2)) / 2, or with tanh in place of erf. onnxruntime has a kernel for float32 alone."""
    if input.dtype != torch.float32 or target_opset() >= _OPSET:
        return NotImplemented
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (input + _CUBE * torch.pow(input, 3))
        return 0.5 * input * (1 + torch.tanh(inner))
    if exporting() == "trace":  # which writes the exact form as below
        return NotImplemented
    return input * (1 + torch.erf(input / math.sqrt(2))) * 0.5
