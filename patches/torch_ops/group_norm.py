"""Group normalization in the form that is fastest in onnxruntime, at every opset."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.nodes import Recipe, Value, Writer, numbers, run
from onnxpatch.formulas.proof_models import randomised


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
        (channels,) = numbers(affine[0].shape)
        scale = given[0] if weight is not None else writer.floats([1.0] * channels)
        shift = given[-1] if bias is not None else writer.floats([0.0] * channels)
        # What it was made for, a fixed mean and spread, costs nothing where these are 0 and 1.
        still = writer.floats([0.0] * channels), writer.floats([1.0] * channels)
        shape = writer.shape(x)
        return writer.node("BatchNormalization", normal, scale, shift, *still, shape=shape, epsilon=0.0)

    return run(Recipe(in_torch, in_onnx), input, *affine)


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
