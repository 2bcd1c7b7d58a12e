"""Sums over an axis that may be empty: onnxruntime keeps the axis if it is counted from the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas.proof_models import Computes
from onnxpatch.formulas.symbolic import symbolic

_NAMES = ("sum", "prod")


class _Differences(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        steps = x[:, 1:] - x[:, :-1]
        return steps.abs().sum(-1), torch.sum(steps, dim=(-1,), keepdim=True), steps.prod(-1)


@patch(
    *(f"{home}.{name}" for home in ("torch", "torch.Tensor") for name in _NAMES),
    name="empty-reductions",
    why="x[:, 1:].sum(-1) of one column has shape (b, 0): onnxruntime's ReduceSum of an empty axis -1",
    link="https://onnx.ai/onnx/operators/onnx__ReduceSum.html",
    exporters=("dynamo", "trace"),
    proof=Proof(
        build=_Differences,
        # Of one column there are no differences.
        inputs=lambda: [(torch.randn(b, n),) for b, n in ((2, 5), (3, 1), (1, 8))],
        dynamic_shapes=({0: "b", 1: "n"},),
        fails=("dynamo", "trace"),
        reason="shape",
        unchanged=lambda: Computes(lambda x: x.sum(0)),
    ),
)
def empty_reductions(original: Callable[..., Tensor], input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The same with axes counted from the front, if one of them has a dynamic size."""
    name = "dim" if "dim" in kwargs or not args else ""
    dim = kwargs.get("dim") if name else args[0]
    axes = [dim] if isinstance(dim, int) else list(dim) if isinstance(dim, tuple | list) else []
    if not any(axis < 0 and symbolic(input.shape[axis]) for axis in axes):
        return NotImplemented
    whole = [axis % input.dim() for axis in axes]
    front: Any = whole[0] if isinstance(dim, int) else whole
    return original(input, **{**kwargs, "dim": front}) if name else original(input, front, *args[1:], **kwargs)
