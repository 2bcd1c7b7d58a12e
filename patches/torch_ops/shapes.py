"""Views of tensors: squeeze, flatten, strides, copies of views."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from onnxpatch import missing, op, untraced
from onnxpatch.formulas import nodes
from onnxpatch.formulas.symbolic import decided_by_data, example_of, known_size, symbolic
from onnxpatch.patching.proof import matrices


def _squeezed(x: Tensor) -> tuple[Tensor, ...]:
    y = x[:, None, :, None]
    return y.squeeze((1, 3)) * 2, torch.squeeze(y, dim=(-1, 1)) + 1, y.squeeze((1, 4))


@op(
    "squeeze",
    name="squeeze-of-several-axes",
    why="only one element tensors can be converted to Python scalars",
    reason="Python scalars",
    link="https://github.com/pytorch/pytorch/issues/104015",
    exporters=("trace",),
    tries=lambda b, n: torch.randn(b, n, 3),
    sizes=((2, 5), (3, 9), (2, 2)),
    case=_squeezed,
    unchanged=lambda x: x.unsqueeze(1).squeeze(1) * 2,
)
def squeeze(original: Callable[..., Tensor], input: Tensor, dim: object = None) -> Tensor:
    """Takes one axis after the other, the last first."""
    if not isinstance(dim, tuple | list):
        return NotImplemented
    for axis in sorted((axis % input.dim() for axis in dim), reverse=True):
        input = original(input, axis)
    return input


@op(
    "squeeze",
    name="squeeze-of-a-dynamic-axis",
    why="Dimension of input 1 must be 1 instead of 3: the axis that torch leaves alone is squeezed in the graph",
    reason="Squeeze",
    link="https://github.com/pytorch/pytorch/issues/121211",
    exporters=("dynamo",),
    tries=lambda n: torch.randn(4, n, 6),
    sizes=(3, 5, 2),
    case=lambda x: (x.squeeze(1) * 2, x.unsqueeze(0).squeeze(0), torch.squeeze(x.unsqueeze(1), (1, -1))),
)
def squeeze_fixed(input: Tensor, *axes: Any, **named: Any) -> Tensor:
    """Keeps dynamic axes. Eager removes one at size 1 only."""
    given = (*axes, *named.values())
    if len(given) != 1 or isinstance(given[0], str):
        return NotImplemented
    wanted = list(given[0]) if isinstance(given[0], tuple | list) else [given[0]]
    # torch.export takes an axis of size 1 for static. A dynamic one is longer, and eager keeps it.
    fixed = [axis for axis in wanted if not isinstance(input.shape[axis], torch.SymInt)]
    if len(fixed) == len(wanted):
        return NotImplemented
    return input.squeeze(tuple(fixed)) if fixed else input


@op(
    "squeeze",
    name="squeeze-of-all-axes",
    why="the result of x.squeeze() has the example's sizes, and what is made of them is a constant: ones_like, shape",
    reason="shape|Broadcast|must match",
    link="https://github.com/pytorch/pytorch/blob/main/torch/onnx/_internal/torchscript_exporter/symbolic_opset13.py",
    exporters=("trace",),
    tries=lambda n: torch.randn(1, n, 1),
    sizes=(5, 3, 8),
    case=lambda x: torch.ones_like(x.squeeze()) + torch.arange(x.squeeze().shape[0]),
    unchanged=lambda x: x.squeeze(0) * 2,
)
def squeeze_all(input: Tensor, *axes: object, **named: object) -> Tensor:
    """The same, as a node whose result has dynamic sizes."""
    rest = [size for size in input.shape if example_of(size) != 1]
    if axes or named or not any(symbolic(size) for size in rest):
        return NotImplemented
    sizes = [None if symbolic(size) else int(size) for size in rest]
    return nodes.run((lambda x: x.squeeze(), lambda writer, x: writer.node("Squeeze", x, shape=sizes)), input)


def _overlapping(x: Tensor) -> Tensor:
    """Longformer's chunks that overlap by half, of a tensor whose axes were exchanged."""
    length, batch, _ = x.shape
    heads = x.view(length, batch, 2, 3).transpose(0, 1).transpose(1, 2).reshape(batch * 2, length, 3)
    chunks = heads.view(heads.size(0), heads.size(1) // 4, 4, heads.size(2))
    size, stride = list(chunks.size()), list(chunks.stride())
    size[1], stride[1] = size[1] * 2 - 1, stride[1] // 2
    return chunks.as_strided(size=size, stride=stride)


@op(
    "as_strided",
    why="the steps are frozen at the example's sizes, and a tensor whose axes were exchanged is read as if it were not",
    reason="relative error|onnxruntime fails|shape",
    link="https://github.com/pytorch/pytorch/issues/113067",
    tries=lambda batch, length: torch.randn(length, batch, 6),
    sizes=((2, 8), (3, 12), (1, 4)),
    case=_overlapping,
    beside=("strides-from-sizes",),
)
def as_strided(input: Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None) -> Tensor:
    """(*size): the element at [i, j, ...] is `i * stride[0] + j * stride[1] + ...` places behind the first.

    The input must fill its storage, in any order of its axes.
    """
    own = [_example(step) for step in input.stride()]
    # By the step, the largest first: the order in which the elements lie in the storage.
    order = sorted(range(input.dim()), key=lambda axis: (-own[axis], axis))
    if storage_offset is not None or not _dense([(own[axis], _example(input.shape[axis])) for axis in order]):
        return NotImplemented
    # The storage itself is not in the graph; its elements are, in this order.
    elements = input.permute(order).reshape(-1)
    places: Tensor | int = 0
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        along = torch.arange(count, device=input.device) * step
        places = places + along.reshape([-1] + [1] * (len(stride) - axis - 1))
    return elements[places]


def _dense(axes: Sequence[tuple[int, int]]) -> bool:
    """Whether (step, size) of the axes, the largest step first, fill the storage without a gap."""
    expected = 1
    for step, size in reversed(axes):
        # The step of an axis of length 1 is never taken, and may be any.
        if size != 1 and step != expected:
            return False
        expected *= size
    return True


def _framed(x: Tensor) -> tuple[Tensor, Tensor]:
    """julius' `unfold`: frames of a padded signal by its own strides and one of its size; a stride as a number."""
    strides, step = list(x.stride()), x.shape[-1] // 4
    frames = x.as_strided([*x.shape[:-1], 3, 2], [*strides[:-1], step * strides[-1], strides[-1]])
    return frames, x * x.transpose(0, 2).stride(2)


@op(
    "stride",
    name="strides-from-sizes",
    why="No ONNX function found for aten.sym_stride; under trace the strides are frozen at the example's",
    reason="sym_stride|relative error|shape",
    link="https://github.com/adefossez/julius/blob/main/julius/core.py",
    tries=lambda batch, length: torch.randn(batch, 3, length),
    sizes=((2, 8), (3, 13), (1, 4)),
    case=_framed,
    beside=("as-strided",),
    unchanged=lambda x: x * x.new_ones(3, 2).stride(0),
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


def _copies(x: Tensor) -> tuple[Tensor, ...]:
    one = torch.permute_copy(x, (2, 0, 1)) + torch.transpose_copy(x, 0, 2).transpose(1, 2)
    two = torch.unsqueeze_copy(x, 1).squeeze(1) + torch.expand_copy(x[:1], x.shape) + torch.narrow_copy(x, 0, 0, 1)
    three = torch.diagonal_copy(x, 0, 0, 1), torch.t_copy(x[0]), torch.squeeze_copy(x[:, :1], 1), torch.alias_copy(x)
    four = torch.as_strided_copy(x, (2, 2), (4, 1), 1)
    return one, two, *three, four, torch.view_copy(x, (-1,)), torch.unfold_copy(x, 2, 2, 1)


@op(
    "alias_copy", "as_strided_copy", "diagonal_copy", "expand_copy", "narrow_copy", "permute_copy",
    "split_with_sizes_copy", "squeeze_copy", "t_copy", "transpose_copy", "unbind_copy", "unfold_copy",
    "unsqueeze_copy", "view_copy",
    name="copies", why=untraced("aten::permute_copy", "aten::transpose_copy", "aten::unsqueeze_copy"),
    tries=lambda b, n: torch.randn(b, n, 4), case=_copies,
)  # fmt: skip
def copied(original: Callable[..., Any], input: Tensor, *args: Any, **kwargs: Any) -> Any:
    """What the view of the same name has: a graph knows no memory."""
    name = original.__name__.removesuffix("_copy")
    return input.clone() if name == "alias" else getattr(torch.Tensor, name)(input, *args, **kwargs)


@op("as_strided_scatter", why=missing("aten::as_strided_scatter"), tries=lambda n: torch.randn(n + 2, 4),
    case=lambda x: torch.as_strided_scatter(x, x[:2, :3] * 2, (2, 3), (5, 2), 1))  # fmt: skip
def as_strided_scatter(input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: Any = None) -> Tensor:
    """`input` with `src` at places counted along all of its elements."""
    if not input.is_contiguous():  # they are counted in memory
        return NotImplemented
    place = torch.zeros([1] * len(size), dtype=torch.int64) + (storage_offset or 0)
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        place = place + (torch.arange(count) * step).reshape([-1 if i == axis else 1 for i in range(len(size))])
    return input.reshape(-1).scatter(0, place.reshape(-1), src.reshape(-1)).reshape(input.shape)


def _chosen(x: Tensor) -> tuple[Tensor, Tensor]:
    """CLAP's fusion computes the longer sounds of a batch alone, of which there may be none."""
    chosen = x[x[:, 0, 0, 0] > 0]
    return chosen.permute(0, 2, 1, 3).flatten(2) * 2, chosen.flatten(1, 2) + 1


@op(
    "flatten",
    name="flatten-of-chosen-rows",
    why="The input tensor cannot be reshaped to the requested shape: of no rows, the size -1 is none in particular",
    reason="cannot be reshaped",
    link="https://onnx.ai/onnx/operators/onnx__Reshape.html",
    exporters=("trace",),
    tries=lambda b: torch.linspace(-1, b - 1.5, b * 24).reshape(b, 3, 2, 4),
    sizes=(4, 6, 1),
    case=_chosen,
    unchanged=lambda x: x.permute(0, 2, 1, 3).flatten(2),
)
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Names each size where data decides one that stays. Other tensors are left to the exporter."""
    rank = max(1, input.dim())
    first, last = start_dim % rank, end_dim % rank
    if first >= last or not decided_by_data(input, [axis for axis in range(rank) if not first <= axis <= last]):
        return NotImplemented
    sizes = [known_size(size) for size in input.shape]
    return input.reshape([*sizes[:first], math.prod(sizes[first : last + 1]), *sizes[last + 1 :]])


op("ravel", why=untraced("aten::ravel"), tries=matrices, to=lambda x: x.reshape(-1))


op(
    "Tensor.H",
    why=untraced("aten::matrix_H"),
    tries=lambda b, n: torch.randn(b, n),
    case=lambda x: x.H @ x,
    to=lambda x: x.transpose(0, 1) if x.dim() == 2 and not x.is_complex() else NotImplemented,
)
