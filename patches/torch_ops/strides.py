"""Strides: `x.stride()` as products of sizes, `as_strided` as a Gather from the elements in the order of storage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, exporting, patch
from onnxpatch.formulas.proof_models import Computes
from onnxpatch.formulas.symbolic import example_of, symbolic


class _Overlapping(torch.nn.Module):
    """Longformer's chunks that overlap by half, of a tensor whose axes were exchanged."""

    def forward(self, x: Tensor) -> Tensor:
        length, batch, _ = x.shape
        heads = x.view(length, batch, 2, 3).transpose(0, 1).transpose(1, 2).reshape(batch * 2, length, 3)
        chunks = heads.view(heads.size(0), heads.size(1) // 4, 4, heads.size(2))
        size, stride = list(chunks.size()), list(chunks.stride())
        size[1], stride[1] = size[1] * 2 - 1, stride[1] // 2
        return chunks.as_strided(size=size, stride=stride)


@patch(
    "torch.as_strided",
    "torch.Tensor.as_strided",
    name="as-strided",
    why="the steps are frozen at the example's sizes, and a tensor whose axes were exchanged is read as if it were not",
    link="https://github.com/pytorch/pytorch/issues/113067",
    exporters=("dynamo", "trace"),
    proof=Proof(
        build=_Overlapping,
        inputs=lambda: [(torch.randn(length, batch, 6),) for batch, length in ((2, 8), (3, 12), (1, 4))],
        dynamic_shapes=({0: "length", 1: "batch"},),
        fails=("dynamo", "trace"),
        reason="relative error|onnxruntime fails|shape",
    ),
)
def as_strided(
    original: Callable[..., Tensor],
    input: Tensor,
    size: Sequence[Any],
    stride: Sequence[Any],
    storage_offset: Any = None,
) -> Tensor:
    """(*size): the element at [i, j, ...] is `i * stride[0] + j * stride[1] + ...` places behind the first.

    The input must fill its storage, in any order of its axes.
    """
    own = [_example(step) for step in input.stride()]
    # By the step, the largest first: the order in which the elements lie in the storage.
    order = sorted(range(input.dim()), key=lambda axis: (-own[axis], axis))
    if storage_offset is not None or not _dense([(own[axis], _example(input.shape[axis])) for axis in order]):
        return NotImplemented
    steps = _from_sizes(input, order, own, stride) if exporting() == "trace" else list(stride)
    if steps is None:
        return NotImplemented
    # The storage itself is not in the graph; its elements are, in this order.
    elements = input.permute(order).reshape(-1)
    places: Tensor | int = 0
    for axis, (count, step) in enumerate(zip(size, steps, strict=True)):
        along = torch.arange(count, device=input.device) * step
        places = places + along.reshape([-1] + [1] * (len(steps) - axis - 1))
    return elements[places]


def _from_sizes(input: Tensor, order: Sequence[int], own: Sequence[int], stride: Sequence[object]) -> list[Any] | None:
    """Under trace a stride is a number of the example: each as a multiple of one of the input's, made of its sizes."""
    products: dict[int, Any] = {}
    product: Any = 1
    for axis in reversed(order):
        products[axis] = product
        product = product * input.shape[axis]
    found = []
    for position, step in enumerate(map(_example, stride)):
        # Its own axis first; else the axis with the largest step of which it is a multiple.
        axes = [axis for axis in order if own[axis] <= step and step % own[axis] == 0]
        if position < len(own) and own[position] == step:
            axes = [position]
        if not axes:
            return None
        found.append(products[axes[0]] * (step // own[axes[0]]))
    return found


def _dense(axes: Sequence[tuple[int, int]]) -> bool:
    """Whether (step, size) of the axes, the largest step first, fill the storage without a gap."""
    expected = 1
    for step, size in reversed(axes):
        # The step of an axis of length 1 is never taken, and may be any.
        if size != 1 and step != expected:
            return False
        expected *= size
    return True


class _Framed(torch.nn.Module):
    """julius' `unfold`: frames of a padded signal by its own strides; and a stride as a number."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        strides = list(x.stride())
        frames = x.as_strided([*x.shape[:-1], x.shape[-1] // 2, 2], [*strides[:-1], 2 * strides[-1], strides[-1]])
        return frames, x * x.transpose(0, 2).stride(2)


@patch(
    "torch.Tensor.stride",
    name="strides-from-sizes",
    why="No ONNX function found for aten.sym_stride; under trace the strides are frozen at the example's",
    link="https://github.com/adefossez/julius/blob/main/julius/core.py",
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Framed,
        lambda: [(torch.randn(batch, 3, length),) for batch, length in ((2, 8), (3, 13), (1, 4))],
        ({0: "batch", 2: "length"},),
        beside=("as-strided",),
        fails=("dynamo", "trace"),
        reason="sym_stride|relative error|shape",
        unchanged=lambda: Computes(lambda x: x * x.new_ones(3, 2).stride(0)),
    ),
)
def stride(original: Callable[..., Any], self: Tensor, dim: int | None = None) -> Any:
    """([*sizes], axis): the product of the sizes of the axes that lie inside each, in the order of the storage.

    Left alone: tensors that do not fill their storage, such as every second element of another.
    """
    if not any(map(symbolic, self.shape)):
        return NotImplemented
    own = [_example(step) for step in original(self)]
    sizes = [_example(size) for size in self.shape]
    found: list[Any] = [1] * self.dim()
    product, expected = 1, 1
    # The innermost first. Axes of length 1 in the example may have any stride: they count in their own order.
    for axis in sorted(range(self.dim()), key=lambda axis: (own[axis], -axis)):
        if sizes[axis] != 1 and own[axis] != expected:
            return NotImplemented
        found[axis] = product
        product, expected = product * self.shape[axis], expected * sizes[axis]
    return tuple(found) if dim is None else found[dim]


def _example(value: Any) -> int:
    known = example_of(value)
    return int(value) if known is None else int(known)
