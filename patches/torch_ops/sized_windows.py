"""Convolutions and pools whose `padding` or window is computed from a size.

`padding=[n % 2 for n in x.shape[2:]]` would be an attribute of the ONNX node, and attributes are constants; the pads of
a Pad are an input: a Pad comes first, then the layer without padding. Of a window over a whole axis, `x.shape[2:]`, the
mean or the maximum of the axis is taken.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import exporting, op
from onnxpatch.formulas.symbolic import fixed_size, same_size, symbolic
from onnxpatch.formulas.windows import on_each_axis

_row = functools.partial(
    op,
    why="the padding is frozen at the example's: an attribute of the node cannot depend on a size",
    reason="shape|Failed to export a node|relative error",
    link="https://github.com/VainF/pytorch-msssim/blob/master/pytorch_msssim/ssim.py",
    tries=lambda h, w: torch.randn(2, 4, h, w),
    sizes=((8, 9), (7, 6), (12, 5)),
    plain=False,
)


class _Convolved(torch.nn.Module):
    """Padded to an even size, and by a third of the width."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2, 2, 3, 3))
        self.bias = torch.nn.Parameter(torch.randn(2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        height, width = x.shape[2:]
        even = functional.conv2d(x, self.weight, self.bias, 2, (height % 2, width % 2), groups=2)
        apart = functional.conv2d(x, self.weight[..., :2], None, 1, "same", (2, 1), 2)
        return even + apart.mean(), torch.conv1d(x[:, :2, 0], self.weight[:, :, 0], padding=width // 3, dilation=2)


@_row(
    *(f"nn.functional.conv{n}d" for n in (1, 2, 3)),
    name="convolution-padded-by-sizes",
    reason="Unsupported attribute type|shape|Dilation not supported",
    case=_Convolved,
    unchanged=lambda x: functional.conv2d(x, x.new_ones(1, 4, 3, 3), padding=1),
)
def padded_convolution(
    original: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: object = 1,
    padding: object = 0,
    dilation: object = 1,
    groups: int = 1,
) -> Tensor:
    """Zeros around the input, then the convolution without padding."""
    wide = padding == "same" and exporting() == "trace" and dilation not in (1, (1,), (1, 1), (1, 1, 1))
    pads = _same(weight, dilation) if wide else _pads(padding, weight.dim() - 2)
    if pads is None:
        return NotImplemented
    return original(functional.pad(input, pads), weight, bias, stride, 0, dilation, groups)


def _averaged(x: Tensor) -> tuple[Tensor, Tensor]:
    """pytorch-msssim's halving, with the padding counted and not."""
    odd = [size % 2 for size in x.shape[2:]]
    inner = functional.avg_pool2d(x, 3, 2, padding=odd, count_include_pad=False)
    return functional.avg_pool2d(x, kernel_size=2, padding=odd), inner


@_row(
    *(f"nn.functional.avg_pool{n}d" for n in (1, 2, 3)),
    name="average-pool-padded-by-sizes",
    case=_averaged,
    unchanged=lambda x: functional.avg_pool2d(x, 2, padding=1),
)
def average_pool(
    original: Callable[..., Tensor],
    input: Tensor,
    kernel_size: object,
    stride: object = None,
    padding: object = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: object = None,
) -> Tensor:
    """Zeros around the input; where they do not count, divided by the share of each window that lies in the input."""
    rank = int(original.__name__[-2])
    pads = _pads(padding, rank)
    # With ceil_mode, a window may not begin in the padding; it could in zeros that are part of the input.
    if pads is None or ceil_mode or divisor_override is not None:
        return NotImplemented
    sums = original(functional.pad(input, pads), kernel_size, stride)
    if count_include_pad:
        return sums
    # The same pooling of ones gives the share of each window that is no padding.
    inside = functional.pad(torch.ones_like(input[:1, :1] if input.dim() == rank + 2 else input[:1]), pads)
    return sums / original(inside, kernel_size, stride)


def _largest(x: Tensor) -> tuple[Tensor, Tensor]:
    pooled = functional.max_pool2d(x, 2, padding=[size % 2 for size in x.shape[2:]])
    return pooled, functional.max_pool1d(x[:, :, 0] - 5, 3, padding=x.shape[3] % 2)


@_row(
    *(f"nn.functional.max_pool{n}d" for n in (1, 2, 3)),
    name="max-pool-padded-by-sizes",
    case=_largest,
    unchanged=lambda x: functional.max_pool2d(x, 2, padding=1),
)
def max_pool(
    original: Callable[..., Tensor],
    input: Tensor,
    kernel_size: object,
    stride: object = None,
    padding: object = 0,
    dilation: object = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """Minus infinity around the input, which no window takes for its largest."""
    pads = _pads(padding, int(original.__name__[-2]))
    # As for averages: windows that begin in the padding. Places would count the padding, too.
    if pads is None or ceil_mode or return_indices or not input.dtype.is_floating_point:
        return NotImplemented
    return original(functional.pad(input, pads, value=float("-inf")), kernel_size, stride, 0, dilation)


def _same(weight: Tensor, dilation: Any) -> list[int] | None:
    """What keeps the size: the operator's own form takes no dilation. An odd zero stands behind, as in torch."""
    kernel = [fixed_size(weight, axis) for axis in range(2, weight.dim())]
    if None in kernel:
        return None
    steps = on_each_axis(dilation, len(kernel))
    spans = [step * (size - 1) for size, step in zip(kernel, steps, strict=True) if size is not None]
    return [side for span in reversed(spans) for side in (span // 2, span - span // 2)]


def _pads(padding: object, axes: int) -> list[Any] | None:
    """The argument of `functional.pad`, last axis first; None for plain numbers and for "same" or "valid"."""
    if not any(map(symbolic, padding if isinstance(padding, tuple | list) else [padding])):
        return None
    # Each axis is padded by its number on both sides.
    return [size for size in reversed(on_each_axis(padding, axes)) for _ in range(2)]


_of_whole_axes = functools.partial(
    op,
    why="because it is not constant. Please try to make things (e.g. kernel sizes) static if possible; under dynamo "
    "the window is the example's: Constraints violated",
    reason="not constant|Constraints violated|static shape|specialized",
    link="https://github.com/pytorch/pytorch/issues/47887",
    tries=lambda b, h, w: torch.randn(b, 3, h, w),
    sizes=((2, 8, 6), (1, 5, 9), (3, 2, 1)),
    plain=False,
)


def _global(pool: Callable[..., Tensor]) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """One value for each channel, one for each row, and halves of the rows."""
    return lambda x: (pool(x, x.shape[2:]), pool(x, (1, x.shape[3])), pool(x, kernel_size=[2, x.shape[3]]))


@_of_whole_axes(
    *(f"nn.functional.avg_pool{n}d" for n in (1, 2, 3)),
    name="average-of-whole-axes",
    case=_global(functional.avg_pool2d),
    unchanged=lambda x: functional.avg_pool2d(x, 2),
)
def average(
    original: Callable[..., Tensor],
    input: Tensor,
    kernel_size: object,
    stride: object = None,
    padding: object = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: object = None,
) -> Tensor:
    """The mean over the axes whose window is the whole axis; the window of the others as it is."""
    found = _whole(input, kernel_size, stride, padding)
    if found is None or divisor_override is not None:
        return NotImplemented
    return _others(original, input.mean(found[0], keepdim=True), found, ceil_mode, count_include_pad)


@_of_whole_axes(
    *(f"nn.functional.max_pool{n}d" for n in (1, 2, 3)),
    name="maximum-of-whole-axes",
    case=_global(functional.max_pool2d),
    unchanged=lambda x: functional.max_pool2d(x, 2),
)
def maximum_of_whole_axes(
    original: Callable[..., object],
    input: Tensor,
    kernel_size: object,
    stride: object = None,
    padding: object = 0,
    dilation: object = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> object:
    """The maximum over the axes whose window is the whole axis; the window of the others as it is."""
    found = _whole(input, kernel_size, stride, padding)
    # Indices would count places of the whole input; a window with gaps is longer than the axis.
    if found is None or return_indices or dilation not in (1, (1, 1), [1, 1]):
        return NotImplemented
    return _others(original, input.amax(found[0], keepdim=True), found, 1, ceil_mode)


Windows = tuple[tuple[int, ...], list[int], list[int], list[int]]


def _whole(input: Tensor, kernel_size: object, stride: object, padding: object) -> Windows | None:
    """(axes that a window covers whole, and the window, step and padding of each axis once these have one element).

    None where there is no such axis, where one is padded, or where another window depends on a size.
    """
    if not isinstance(kernel_size, tuple | list):
        return None
    rank = len(kernel_size)
    kernel, pads = list(kernel_size), on_each_axis(padding, rank)
    steps = list(kernel) if stride is None or stride in ((), []) else on_each_axis(stride, rank)
    axes = []
    for place, window in enumerate(kernel):
        if isinstance(window, int):
            continue
        # With padding, an average divides by more than the axis has, and a longer axis has several windows.
        if not same_size(window, input.shape[place - rank]) or pads[place] != 0:
            return None
        axes.append(place - rank)
        # One element is left, which the pooling of the other axes passes on.
        kernel[place], steps[place] = 1, 1
    return (tuple(axes), kernel, steps, pads) if axes else None


def _others(original: Callable[..., object], pooled: Tensor, windows: Windows, *more: object) -> Any:
    """The axes that are not whole, by the function itself with these further arguments."""
    _, kernel, steps, pads = windows
    return pooled if all(n == 1 for n in kernel) else original(pooled, kernel, steps, pads, *more)
