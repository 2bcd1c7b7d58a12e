"""Normalizations that the TorchScript exporter refuses: layer norm over a size of its input, RMS norm, and instance
norm over dynamic channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from onnxpatch import exporting, op
from onnxpatch.formulas.nodes import target_opset
from onnxpatch.formulas.normalization import rms_norm as _rms_norm
from onnxpatch.formulas.symbolic import static_number
from onnxpatch.formulas.tracing import tracing_paused


class _Layer(torch.nn.Module):
    """A layer norm over the size of a value whose shape the exporter does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(6))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        rows = torch.nn.utils.rnn.pad_sequence([x, y], batch_first=True)
        return torch.nn.functional.layer_norm(rows, rows.shape[-1:], self.weight)


@op(
    "nn.functional.layer_norm",
    why="Failed to export a node (in list node prim::ListConstruct) because it is not constant",
    reason="because it is not constant",
    link="https://github.com/pytorch/pytorch/issues/45126",
    exporters=("trace",),
    # The longer one is once the second, once the first.
    tries=lambda b, n: (torch.randn(b, 6), torch.randn(n, 6)),
    sizes=((2, 4), (5, 3)),
    case=_Layer,
    beside=("pad-sequence",),
)
def layer_norm(
    original: Callable[..., torch.Tensor],
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Passes the weight's shape as `normalized_shape`: under trace, sizes of the input are no constants."""
    if weight is None or not any(isinstance(size, torch.Tensor) for size in normalized_shape):
        return NotImplemented
    # Paused, a shape is ints; under trace it would be tensors again.
    with tracing_paused():
        normalized_shape = tuple(weight.shape)
    return original(input, normalized_shape, weight, bias, eps)


class _RMS(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rms_norm(x, (6,), self.weight)


@op(
    "rms_norm",
    why="Exporting the operator 'aten::rms_norm' to ONNX opset version 18 is not supported; under dynamo seven nodes "
    "that onnxruntime does not fuse",
    reason="aten::rms_norm",
    link="https://github.com/pytorch/pytorch/issues/142275",
    leaner=("dynamo",),
    tries=lambda b, n: torch.randn(b, n, 6),
    sizes=((2, 5), (3, 8)),
    case=_RMS,
)
def rms_norm(
    original: object,
    input: torch.Tensor,
    normalized_shape: list[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """Computes x / sqrt(mean(x^2) + eps), times the weight."""
    if exporting() == "dynamo" and (weight is None or input.dtype != torch.float32 or target_opset() >= 23):
        return NotImplemented  # the exporter is right, and writes one node from opset 23 on
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    return _rms_norm(input, weight, eps, range(-len(normalized_shape), 0))


class _Instance(torch.nn.Module):
    """Instance norm over static channels, and over a dynamic axis."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.InstanceNorm1d(6, affine=True)
        torch.nn.init.normal_(self.norm.weight)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.norm(x.transpose(1, 2)), torch.nn.functional.instance_norm(x)


@op(
    "nn.functional.instance_norm",
    why="ONNX export of instance_norm for unknown channel size",
    reason="unknown channel size",
    link="https://github.com/pytorch/pytorch/issues/92977",
    exporters=("trace",),
    tries=lambda b, n: torch.randn(b, n, 6),
    sizes=((2, 5), (3, 8), (1, 4)),
    case=_Instance,
)
def instance_norm(
    original: Callable[..., torch.Tensor],
    input: torch.Tensor,
    running_mean: torch.Tensor | None = None,
    running_var: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Normalizes each channel of each sample by its mean and variance, or by the running ones."""
    channels = static_number(input.shape[1]) if isinstance(input.shape[1], torch.Tensor) else input.shape[1]
    if use_input_stats and running_mean is None and isinstance(channels, int) and input.dtype == torch.float32:
        # The exporter is right, and writes one node, where a weight and a bias tell it the number of channels.
        weight = torch.ones(channels) if weight is None else weight
        bias = torch.zeros(channels) if bias is None else bias
        return original(input, None, None, weight, bias, True, momentum, eps)
    by_channel = [1, -1] + [1] * (input.dim() - 2)
    if use_input_stats:
        axes = list(range(2, input.dim()))
        mean = input.mean(axes, keepdim=True)
        # Divided by n, as torch normalizes; n - 1 is for the running variance.
        variance = (input - mean).pow(2).mean(axes, keepdim=True)
    else:
        mean, variance = (stored.view(by_channel) for stored in (running_mean, running_var) if stored is not None)
    normal = (input - mean) * torch.rsqrt(variance + eps)
    normal = normal if weight is None else normal * weight.view(by_channel)
    return normal if bias is None else normal + bias.view(by_channel)
