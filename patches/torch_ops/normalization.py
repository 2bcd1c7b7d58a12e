"""Layer, RMS, instance and group normalization, in forms that export and are fast in onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from onnxpatch import exporting, op, untraced
from onnxpatch.formulas.elementary import by_channel
from onnxpatch.formulas.layer_nodes import normalized_by_rms as _rms_norm
from onnxpatch.formulas.nodes import Value, Writer, as_ints, run, target_opset
from onnxpatch.formulas.symbolic import decided_by_data, known_size, static_number, tracing_paused
from onnxpatch.patching.proof import randomised


class _Layer(torch.nn.Module):
    """A layer norm over the size of a value whose shape the exporter does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(6))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.nn.utils.rnn.pad_sequence([x, y], batch_first=True)
        whole = torch.nn.functional.layer_norm(x, x.shape)
        return torch.nn.functional.layer_norm(rows, rows.shape[-1:], self.weight), whole


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
    """By the weight's shape, or the sizes that do not change. Under trace, sizes of the input are no constants."""
    if not any(isinstance(size, torch.Tensor) for size in normalized_shape):
        return NotImplemented
    if weight is not None:
        # Paused, a shape is ints; under trace it would be tensors again.
        with tracing_paused():
            normalized_shape = tuple(weight.shape)
        return original(input, normalized_shape, weight, bias, eps)
    known = [static_number(size) if isinstance(size, torch.Tensor) else size for size in normalized_shape]
    if bias is None and None in known:  # an axis of the operator has a fixed size
        axes = tuple(range(-len(known), 0))
        apart = input - input.mean(axes, keepdim=True)
        return apart / torch.sqrt((apart * apart).mean(axes, keepdim=True) + eps)
    return original(input, known, weight, bias, eps)


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
    original: object, input: Tensor, normalized_shape: list[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
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
    channels = known_size(input.shape[1])
    fixed = isinstance(channels, int) and not decided_by_data(input, range(2, input.dim()))
    if use_input_stats and running_mean is None and fixed and input.dtype == torch.float32:
        # The exporter is right, and writes one node, where a weight and a bias tell it the number of channels. Of no
        # places, as data may choose, onnxruntime ends the process there.
        weight = torch.ones(channels) if weight is None else weight
        bias = torch.zeros(channels) if bias is None else bias
        return original(input, None, None, weight, bias, True, momentum, eps)
    normal = _normal(input.flatten(2), eps)[0].reshape(input.shape)
    if running_mean is not None and running_var is not None and not use_input_stats:
        normal = by_channel(by_channel(input, None, -running_mean), torch.rsqrt(running_var + eps), None)
    return by_channel(normal, weight, bias)


class _OfChosen(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = randomised(torch.nn.InstanceNorm1d(3, affine=True))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.norm(x[:, :, x[0, 0] > 0])
        return found


@op(
    "nn.functional.instance_norm",
    name="instance-norm-of-chosen-places",
    why="Could not guard on data-dependent expression Eq(3*u0, 0): the kernel asks whether there are places",
    reason="data-dependent expression",
    link="https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/export/programming_model.html",
    exporters=("dynamo",),
    tries=lambda n: torch.linspace(-1, n, 3 * n).reshape(n, 3).t()[None],
    sizes=(5, 9, 7),
    case=_OfChosen,
    unchanged=lambda x: torch.nn.functional.instance_norm(x),
)
def instance_norm_of_chosen_places(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None,
    bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """The same by mean and variance of each channel, where data decides the number of places."""
    if not use_input_stats or not decided_by_data(input, range(2, input.dim())):
        return NotImplemented
    return by_channel(_normal(input.flatten(2), eps)[0].reshape(input.shape), weight, bias)


def _normal(x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """x, normalized along its last axis, the means, and the reciprocals of the deviations."""
    mean = x.mean(-1, keepdim=True)
    # Divided by n, as torch normalizes; n - 1 is for the running variance.
    spread = torch.rsqrt(((x - mean) * (x - mean)).mean(-1, keepdim=True) + eps)
    return (x - mean) * spread, mean, spread


op(
    "nn.modules.instancenorm._InstanceNorm.forward",
    name="instance-norm-of-any-channels",
    why="static shape: torch's layer compares the number of channels with num_features, to warn that it is not used",
    reason="static shape",
    exporters=("dynamo",),
    tries=lambda b, c: torch.randn(b, c, 6),
    sizes=((2, 3), (3, 5), (1, 1)),
    case=lambda: torch.nn.InstanceNorm1d(3),
    to=lambda self, x: (
        self._apply_instance_norm(x) if not self.affine and x.dim() > self._get_no_batch_dim() else NotImplemented
    ),
)


@op(
    "group_norm",
    why="GroupNormalization has no kernel in onnxruntime on the CPU, which runs its definition operator by operator; "
    "below opset 21 the scale and the shift each pass over all values",
    link="https://github.com/microsoft/onnxruntime/issues/24538",
    fails=(),
    slower={"dynamo": 1.5},
    # Not of mean 0; the last one is large, since times are compared at it.
    tries=lambda b, size: torch.randn(b, 64, *size) + 1,
    sizes=((2, (8, 9)), (1, (5, 6)), (8, (64, 64))),
    case=lambda: randomised(torch.nn.GroupNorm(4, 64)),
    opset=23,
)
def group_norm(
    original: object,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalizes each group of (batch, channels, ...) by its mean and variance, then scales and shifts in one pass."""
    affine = [one for one in (weight, bias) if one is not None]
    if any(one.dtype != torch.float32 for one in (input, *affine)):
        return NotImplemented

    def in_torch(x: Tensor, *given: Tensor) -> Tensor:
        # Those of `affine`: a side of an `If` has no other tensors.
        scale = given[0] if weight is not None else None
        # Not functional.group_norm: its stand-in is this one.
        made: Tensor = torch.ops.aten.group_norm(x, num_groups, scale, given[-1] if bias is not None else None, eps)
        return made

    def in_onnx(writer: Writer, x: Value, *given: Value) -> Value:
        normal = _by_group(writer, x, num_groups, eps)
        if not given:
            return normal
        (channels,) = as_ints(affine[0].shape)
        scale = given[0] if weight is not None else writer.floats([1.0] * channels)
        shift = given[-1] if bias is not None else writer.floats([0.0] * channels)
        # What it was made for, a fixed mean and spread, costs nothing where these are 0 and 1.
        still = writer.floats([0.0] * channels), writer.floats([1.0] * channels)
        shape = writer.shape(x)
        return writer.node("BatchNormalization", normal, scale, shift, *still, shape=shape, epsilon=0.0)

    return run((in_torch, in_onnx), input, *affine)


def _by_group(writer: Writer, x: Value, groups: int, eps: float) -> Value:
    """Each group as one channel of InstanceNormalization; the shape is as before."""
    # A constant target: 0 copies the batch, -1 takes the rest, so no size is read for it.
    shape, target = writer.shape(x), writer.ints([0, groups, -1])
    rest: Any = None if None in shape[1:] else math.prod(shape[1:]) // groups
    grouped = writer.node("Reshape", x, target, shape=[shape[0], groups, rest])
    ones, zeros = writer.floats([1.0] * groups), writer.floats([0.0] * groups)
    normal = writer.node("InstanceNormalization", grouped, ones, zeros, shape=[shape[0], groups, rest], epsilon=eps)
    sizes = writer.node("Shape", x, like=target, shape=(len(shape),))
    return writer.node("Reshape", normal, sizes, shape=shape)


# ------------------------------------------------------------------ normalization, with its statistics
def _group(x: Tensor) -> tuple[Tensor, ...]:
    return torch.native_group_norm(x, x[0, :, 0, 0] * 1, None, x.shape[0], 4, x.shape[2] * x.shape[3], 2, 1e-3)


@op(
    "native_group_norm",
    why=untraced("aten::native_group_norm"),
    case=_group,
    tries=lambda b, h, w: torch.randn(b, 4, h, w),
)
def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: Any, C: Any, HxW: Any, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The normalized groups, their means, and the reciprocals of their deviations."""
    found, mean, spread = _normal(input.reshape(input.shape[0], group, -1), eps)
    return by_channel(found.reshape(input.shape), weight, bias), mean.squeeze(-1), spread.squeeze(-1)
