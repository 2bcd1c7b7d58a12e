"""Batch norms beneath torch's layers, which return their statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import missing, op

_NATIVE, _ATEN = torch.native_batch_norm, torch.ops.aten


def _normalized(x: Tensor) -> tuple[Tensor, ...]:
    mean, spread = x[0, :, 0] * 0.1, x[0, :, 1].abs() + 1
    weights = x[0, :, 2] * 1, x[0, :, 1] * 1
    return *_NATIVE(x, *weights, mean * 1, spread * 1, False, 0.1, 1e-3), *_NATIVE(
        x, *weights, mean * 1, spread * 1, True, 0.1, 1e-3
    )


@op(
    "native_batch_norm",
    "torch._native_batch_norm_legit",
    "ops.aten._native_batch_norm_legit",
    name="native-batch-norm",
    case=_normalized,
    why=missing("aten::native_batch_norm", "aten::_native_batch_norm_legit", exporters=("trace",)),
    tries=lambda b, n: torch.randn(b + 1, 4, n + 3),
)
def native_batch_norm(
    original: Callable[..., Any],
    input: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    running_mean: Any = None,
    running_var: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """The norm, and the means and reciprocal deviations that it was made with: of the batch if `training`.

    Running statistics are for training alone: new ones are not written.
    """
    shape = [1, -1] + [1] * (input.dim() - 2)
    if training:
        axes = [0, *range(2, input.dim())]
        mean = input.mean(axes)
        apart = input - mean.reshape(shape)
        spread = torch.rsqrt((apart * apart).mean(axes) + eps)
        statistics = mean, spread
    else:
        mean, spread = running_mean, torch.rsqrt(running_var + eps)
        apart, statistics = input - mean.reshape(shape), (input.new_zeros([0]), input.new_zeros([0]))
    found = apart * spread.reshape(shape)
    found = found if weight is None else found * weight.reshape(shape)
    return (found if bias is None else found + bias.reshape(shape), *statistics)


@op(
    "ops.aten._batch_norm_with_update",
    "torch._batch_norm_with_update",
    name="batch-norm-with-update",
    beside=("native-batch-norm",),
    why=missing("aten::_batch_norm_with_update", exporters=("trace",)),
    tries=lambda b, n: torch.randn(b + 1, 4, n + 3),
    case=lambda x: _ATEN._batch_norm_with_update(x, None, None, x[0, :, 0] * 1, x[0, :, 1].abs() + 1, 0.1, 1e-3)[:3],
)
def batch_norm_with_update(
    input: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    running_mean: Any = None,
    running_var: Any = None,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """The same by the batch's statistics, with room that eager reserves for its backward pass."""
    return (*_NATIVE(input, weight, bias, None, None, True, momentum, eps), input.new_zeros([0], dtype=torch.uint8))
