"""Convolutions as products of matrices: with as many groups as the batch has rows, and of one pixel.

`conv2d(x.reshape(1, batch * channels, h, w), filters, groups=batch)`, as in StyleGAN 2 and in trackers, freezes the
batch: the number of groups is an attribute of the ONNX node, and attributes are constants. Here it is an axis of a
product of matrices.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import op
from onnxpatch.formulas import nodes
from onnxpatch.formulas.nodes import Value, Writer
from onnxpatch.formulas.symbolic import (
    decided_by_data,
    fixed_size,
    operator_of,
    spread_by_sizes,
    static_number,
    symbolic,
    traced_from_sizes,
)
from onnxpatch.formulas.windows import on_each_axis

_row = functools.partial(
    op,
    why="ONNX export of convolution for kernel of unknown shape; Unsupported attribute type: groups=batch",
    reason="kernel of unknown shape|Unsupported attribute type",
    link="https://arxiv.org/abs/1912.04958",
    tries=lambda b, h, w: (torch.randn(b, 4, h, w), torch.randn(b, 5, 4)),
    sizes=((2, 6, 7), (3, 5, 9), (1, 4, 4)),
    plain=False,
)


def _filters(style: Tensor) -> Tensor:
    """(B, 5, 4) to (B, 5, 4, 3, 2)."""
    return style[..., None, None] * torch.tensor([[1.0, -2.0], [0.5, 3.0], [-1.0, 0.25]])


def _modulated(x: Tensor, style: Tensor) -> tuple[Tensor, Tensor]:
    batch, channels, high, wide = x.shape
    row, filters = x.reshape(1, batch * channels, high, wide), _filters(style).reshape(-1, channels, 3, 2)
    made = functional.conv2d(row, filters, style[..., 0].reshape(-1), (1, 2), (1, 0), groups=batch)
    line = functional.conv1d(row[:, :, 0], filters[:, :, 0], padding=1, dilation=2, groups=batch)
    return made.reshape(batch, 5, *made.shape[2:]), line.reshape(batch, 5, -1)


@_row(
    "nn.functional.conv1d", "nn.functional.conv2d", name="groups-by-size", case=_modulated, beside=("computed-windows",)
)
def grouped_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
) -> Tensor:
    """The windows of each group by its filters."""
    if not symbolic(groups) or isinstance(padding, str) or input.dim() != weight.dim():
        return NotImplemented
    if weight.dim() == 3:  # of one axis: a map of height 1
        step, margin, apart = ((of, on_each_axis(one, 2)[-1]) for of, one in ((1, stride), (0, padding), (1, dilation)))
        return grouped_convolution(input.unsqueeze(2), weight.unsqueeze(2), bias, step, margin, apart, groups).squeeze(
            2
        )
    kernel = _kernel(weight)
    if not kernel:
        return NotImplemented
    above, left = on_each_axis(padding, 2)  # may be computed from a size, too
    input = functional.pad(input, (left, left, above, above))
    numbers = zip(input.shape[2:], on_each_axis(stride, 2), _spans(kernel, dilation), strict=True)
    sizes = [(n - span) // step + 1 for n, step, span in numbers]
    windows = functional.unfold(input, kernel, dilation, stride=stride)
    windows = windows.reshape(input.shape[0], groups, weight.shape[1] * math.prod(kernel), -1)
    made = weight.reshape(groups, -1, windows.shape[2]) @ windows
    return _biased(made.reshape(input.shape[0], weight.shape[0], *sizes), bias)


def _blurred(x: Tensor) -> tuple[Tensor, ...]:
    """Each channel by the same window, which is repeated for all of them (SSIM), and by one as long as a row (S4)."""
    channels, wide = x.shape[1], x.shape[3]
    window = torch.tensor([[0.25, 0.5, 0.25]])
    x = functional.conv2d(x, (x[:1, :1, :2, :2] + 1).repeat(channels, 1, 1, 1), groups=channels)
    made = functional.conv2d(x, (window.t() @ window).expand(channels, 1, 3, 3), groups=channels)
    decay = torch.exp(-torch.arange(wide) / 3).expand(channels, 1, wide)
    long = functional.conv1d(functional.pad(x[:, :, 0], (wide, 0)), decay, x[0, :, 0, 0], 2, groups=channels)
    return made, long, functional.conv1d(x[:, :, 0], window.expand(channels, 1, 3), padding=1, groups=channels)


@op(
    "nn.functional.conv1d",
    "nn.functional.conv2d",
    "nn.functional.conv3d",
    name="computed-windows",
    why="ONNX export of convolution for kernel of unknown shape: it is made with a size, as the number of channels",
    reason="kernel of unknown shape",
    link="https://github.com/Lightning-AI/torchmetrics/blob/master/src/torchmetrics/functional/image/ssim.py",
    exporters=("trace",),
    tries=lambda b, h, w: torch.rand(b, 3, h, w),
    sizes=((2, 6, 7), (3, 5, 9), (1, 4, 4)),
    case=_blurred,
)
def computed_windows(
    original: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
) -> Tensor:
    """Says the shape of the windows in numbers, or writes the node, which need not know it."""
    sizes = _sizes_of_computed(weight)
    rest = (bias, stride, padding, dilation, groups)
    if not sizes or None not in sizes:
        told = bool(sizes) and (traced_from_sizes(weight) or spread_by_sizes(weight))
        return original(input, weight.reshape(sizes), *rest) if told else NotImplemented
    numbers = [on_each_axis(one, weight.dim() - 2) for one in (stride, padding, dilation)]
    by_size = symbolic(groups) and static_number(groups) is None  # as many as the batch has rows: groups-by-size
    if by_size or input.dim() != weight.dim() or not all(type(one) is int for one in itertools.chain(*numbers)):
        return NotImplemented
    return nodes.run(_convolution(numbers, groups), input, weight, *([] if bias is None else [bias]))


def _sizes_of_computed(weight: Tensor) -> list[Any]:
    """The sizes of windows, None for what no number tells; [] for those of a layer."""
    made = not isinstance(weight, torch.nn.Parameter) and operator_of(weight)
    return [static_number(size) for size in cast("Any", weight.shape)] if made else []


def _convolution(numbers: list[list[int]], groups: Any) -> nodes.Recipe:
    """One node. numbers: stride, padding and dilation of each axis."""
    number, none = int(groups), [0] * len(numbers[0])

    def written(writer: Writer, x: Value, windows: Value, *more: Value) -> Value:
        shape = [writer.shape(x)[0], writer.shape(windows)[0], *[None] * len(numbers[0])]
        strides, pads, dilations = numbers
        named: Any = {"strides": strides, "pads": pads * 2, "dilations": dilations, "group": number}
        return writer.node("Conv", x, windows, *more, shape=shape, **named)

    def computed(x: Tensor, windows: Tensor, bias: Tensor | None = None) -> Tensor:
        # No function that a patch replaces: it would write its nodes as well.
        return torch.ops.aten.convolution(x, windows, bias, *numbers, False, none, number)

    return computed, written


def _enlarged(x: Tensor, style: Tensor) -> Tensor:
    batch, channels, high, wide = x.shape
    row, filters = x.reshape(1, batch * channels, high, wide), _filters(style).transpose(1, 2).reshape(-1, 5, 3, 2)
    made = functional.conv_transpose2d(row, filters, None, 2, 1, (0, 1), groups=batch)
    return made.reshape(batch, 5, *made.shape[2:])


@_row(
    "nn.functional.conv_transpose2d",
    name="transposed-groups-by-size",
    case=_enlarged,
    beside=("fold-dynamic-size", "composites"),
)
def transposed_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: Any = 1,
    dilation: Any = 1,
) -> Tensor:
    """Each pixel of a group by its filters, laid over each other."""
    kernel = _kernel(weight) if symbolic(groups) and input.dim() == 4 else ()
    if not kernel:
        return NotImplemented
    high, wide = input.shape[2:]
    spans = _spans(kernel, dilation)
    steps, margins, ends = (on_each_axis(one, 2) for one in (stride, padding, output_padding))
    numbers = zip((high, wide), steps, margins, spans, ends, strict=True)
    sizes: Any = [(n - 1) * step - 2 * margin + span + more for n, step, margin, span, more in numbers]
    pixels = input.reshape(input.shape[0], groups, -1, high * wide)
    columns = weight.reshape(groups, pixels.shape[2], -1).transpose(1, 2) @ pixels
    return _biased(functional.fold(columns.flatten(1, 2), sizes, kernel, dilation, padding, stride), bias)


def _kernel(weight: Tensor) -> tuple[int, ...]:
    """Its height and width; () where one is dynamic."""
    sizes = fixed_size(weight, 2), fixed_size(weight, 3)
    return tuple(size for size in sizes if size is not None) if None not in sizes else ()


def _spans(kernel: tuple[int, ...], dilation: Any) -> list[int]:
    """How many pixels a window reaches over."""
    return [step * (count - 1) + 1 for step, count in zip(on_each_axis(dilation, 2), kernel, strict=True)]


def _biased(made: Tensor, bias: Tensor | None) -> Tensor:
    return made if bias is None else made + bias.reshape(-1, 1, 1)


class _Weighed(torch.nn.Module):
    """Weights from each pixel and from all of them, as CLAP's fusion has them and squeeze-and-excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.near, self.far = torch.nn.Conv2d(16, 16, 1), torch.nn.Conv2d(16, 16, 1)

    def forward(self, x: Tensor) -> Tensor:
        rows = x[x[:, 0, 0, 0] > 0]
        return torch.sigmoid(self.near(rows) + self.far(functional.adaptive_avg_pool2d(rows, 1))) * rows


def _of_one_pixel(function: object, args: tuple[object, ...], kwargs: dict[str, Any]) -> bool:
    names = ("input", "weight", "bias", "stride", "padding")
    given: dict[str, Any] = {"padding": 0, **dict(zip(names, args, strict=False)), **kwargs}
    bare = given["padding"] in (0, (0, 0)) and given["input"].dim() == 4
    return bare and _single(given["weight"]) and _single(given["input"])


@op(
    "nn.functional.conv2d",
    name="convolution-of-one-pixel",
    calls=_of_one_pixel,
    why="The input tensor cannot be reshaped to the requested shape. Input shape:{0,16,1,1}, requested "
    "shape:{0,-1,1,1,8}: of no rows, where onnxruntime puts two convolutions that are added into its own layout",
    reason="cannot be reshaped",
    link="https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/optimizer/nchwc_transformer.cc",
    tries=lambda b: torch.linspace(-1, b - 1.5, b * 16 * 6).reshape(b, 16, 2, 3),
    sizes=(4, 6, 1),
    case=_Weighed,
    unchanged=lambda x: functional.conv2d(x.mean((2, 3), keepdim=True), x.new_ones(4, 16, 1, 1)),
)
def convolution_of_one_pixel(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: object = 1,
    padding: object = 0,
    dilation: object = 1,
    groups: int = 1,
) -> Tensor:
    """A product of matrices, where data decides the number of rows."""
    if groups != 1 or not decided_by_data(input, [0]):
        return NotImplemented
    return functional.linear(input.flatten(1), weight.flatten(1), bias)[:, :, None, None]


def _single(x: Tensor) -> bool:
    """Whether its last two axes have one element at every size of the inputs."""
    # The example rules most out, before a long expression is asked for.
    if any(fixed_size(x, axis) != 1 for axis in (2, 3)):
        return False
    return all(static_number(size) == 1 if isinstance(size, Tensor) else True for size in x.shape[2:])
