"""Batch norm by the statistics of the batch itself, in half precision, and beneath torch's layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onnxpatch import exporting, missing, op
from onnxpatch.formulas.elementary import by_channel
from onnxpatch.formulas.symbolic import decided_by_data
from onnxpatch.patching.proof import randomised


class _Standardised(torch.nn.Module):
    """Standardizes weights, as some convolutions do, maps by their own statistics, and halves by those in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(3, track_running_stats=False)
        self.mixed = randomised(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 2), torch.nn.BatchNorm2d(4)))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        with torch.autocast("cpu", dtype=torch.float16):
            mixed = self.mixed(x)
        kept = F.batch_norm(x, x[0, :, 0, 0] * 1, x[0, :, 0, 1].abs(), training=True)
        return F.batch_norm(x, None, None, training=True), self.norm(x), mixed, kept


@op(
    "nn.functional.batch_norm",
    name="batch-statistics",
    why="AssertionError: batch_size and channel_size must be non-None; the exported graph normalises by zeros and "
    "ones; "
    "under torch.autocast: Type parameter (T) of Optype (Conv) bound to different types, since the exporter folds a "
    "batch norm in float32 into a convolution in float16",
    reason="batch_size and channel_size|AssertionError|bound to different types",
    link="https://github.com/pytorch/pytorch/issues/75252",
    # Neither of mean 0 nor of variance 1, for which a graph without statistics would be right.
    tries=lambda b, size: torch.randn(b, 3, *size) * 2 + 1,
    sizes=((2, (8, 9)), (1, (13, 6)), (3, (5, 5))),
    case=_Standardised,
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
    """Computes mean and variance over batch and positions. A call by running statistics is left to torch: it
    computes in their dtype, as eager does, and the result is cast to the dtype of the input."""
    if not training and running_var is not None and running_var.dtype != input.dtype:
        # Both casts are in the graph, so that the exporter does not fold the norm into the convolution before it.
        wide = original(input.to(running_var.dtype), running_mean, running_var, weight, bias, training, momentum, eps)
        return wide.to(input.dtype)
    if not training or (exporting() == "trace" and (running_mean is not None or running_var is not None)):
        return NotImplemented
    axes = [0, *range(2, input.dim())]
    centred = input - input.mean(axes, keepdim=True)
    # The variance without Bessel's correction: torch uses that for the running statistics only.
    found = centred / torch.sqrt((centred * centred).mean(axes, keepdim=True) + eps)
    return by_channel(found, weight, bias)


class _OfChosen(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = randomised(torch.nn.BatchNorm2d(3))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.norm(x[x[:, 0, 0, 0] > 0])
        return found


@op(
    "nn.functional.batch_norm",
    name="batch-norm-of-chosen-rows",
    why="Could not guard on data-dependent expression Eq(96*u0, 0): the kernel asks whether there are rows",
    reason="data-dependent expression",
    link="https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/export/programming_model.html",
    exporters=("dynamo",),
    tries=lambda b: torch.linspace(-1, b - 1.5, b * 18).reshape(b, 3, 2, 3),
    sizes=(4, 6, 1),
    case=_OfChosen,
    unchanged=lambda x: F.batch_norm(x, x.new_zeros(3), x.new_ones(3)),
)
def batch_norm_of_chosen_rows(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """One factor and one summand for each channel, where data decides the number of rows."""
    if training or running_mean is None or running_var is None or not decided_by_data(input, [0]):
        return NotImplemented
    factor = torch.rsqrt(running_var + eps) * (1 if weight is None else weight)
    summand = (0 if bias is None else bias) - running_mean * factor
    return by_channel(input, factor, summand).to(input.dtype)


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
    why="aten::native_batch_norm is not supported by trace; dynamo takes the running statistics for the batch's",
    reason="native_batch_norm|eager has|relative error",
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
    return (by_channel(apart * spread.reshape(shape), weight, bias), *statistics)


@op(
    "ops.aten._batch_norm_with_update",
    "torch._batch_norm_with_update",
    name="batch-norm-with-update",
    beside=("native-batch-norm",),
    why=missing("aten::_batch_norm_with_update"),
    reason="batch_norm",
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
