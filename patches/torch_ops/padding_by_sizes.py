"""Convolutions and pools whose `padding` is computed from a size: a Pad first, then the layer without padding.

`padding=[n % 2 for n in x.shape[2:]]` would be an attribute of the ONNX node, and attributes are constants; the pads of
a Pad are an input.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import op
from onnxpatch.formulas.symbolic import symbolic

_row = functools.partial(
    op,
    why="the padding is frozen at the example's: an attribute of the node cannot depend on a size",
    reason="shape|Failed to export a node|relative error",
    link="https://github.com/VainF/pytorch-msssim/blob/master/pytorch_msssim/ssim.py",
    tries=lambda h, w: torch.randn(2, 4, h, w),
    sizes=((8, 9), (7, 6), (12, 5)),
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
        return even, torch.conv1d(x[:, :2, 0], self.weight[:, :, 0], padding=width // 3, dilation=2)


@_row(
    *(f"nn.functional.conv{n}d" for n in (1, 2, 3)),
    name="convolution-padded-by-sizes",
    reason="Unsupported attribute type|shape",
    case=_Convolved,
    unchanged=lambda x: functional.conv2d(x, x.new_ones(1, 4, 3, 3), padding=1),
)
def convolution(
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
    pads = _pads(padding, weight.dim() - 2)
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


def _pads(padding: object, axes: int) -> list[Any] | None:
    """The argument of `F.pad`, last axis first; None for plain numbers and for "same" or "valid"."""
    each: Sequence[Any] = padding if isinstance(padding, tuple | list | torch.Size) else [padding]
    if not any(map(symbolic, each)):
        return None
    # One number stands for all axes; each axis is padded by it on both sides.
    each = list(each) * axes if len(each) == 1 else list(each)
    return [size for size in reversed(each) for _ in range(2)]
