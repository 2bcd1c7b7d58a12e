"""RMS normalization in the form that onnxruntime runs as one kernel at every opset."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from onnxpatch.formulas.nodes import Recipe, Value, Writer, run, target_opset

_OPSET = 23  # the first opset with RMSNormalization


def rms_norm(x: Tensor, weight: Tensor | None, eps: float, axes: Sequence[int] = (-1,)) -> Tensor:
    """x / sqrt(mean(x^2) + eps) over the last `axes`, times the weight. x: float32 or float64."""
    if weight is None or target_opset() < _OPSET:
        # A division: onnxruntime's fusion does not recognize a product with the reciprocal.
        normal = x / torch.sqrt(x.pow(2).mean(list(axes), keepdim=True) + eps)
        return normal if weight is None else normal * weight

    def in_torch(x: Tensor, weight: Tensor) -> Tensor:
        return x / torch.sqrt(x.pow(2).mean(list(axes), keepdim=True) + eps) * weight

    def in_onnx(writer: Writer, x: Value, weight: Value) -> Value:
        return writer.node("RMSNormalization", x, weight, shape=writer.shape(x), axis=-len(axes), epsilon=eps)

    return run(Recipe(in_torch, in_onnx), x, weight)
