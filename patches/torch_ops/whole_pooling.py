"""Pooling over a whole axis, written with its size as the window: `F.avg_pool2d(x, x.shape[2:])`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import op
from onnxpatch.formulas.symbolic import same_size

_row = functools.partial(
    op,
    why="because it is not constant. Please try to make things (e.g. kernel sizes) static if possible; under dynamo "
    "the window is the example's: Constraints violated",
    reason="not constant|Constraints violated|static shape|specialized",
    link="https://github.com/pytorch/pytorch/issues/47887",
    tries=lambda b, h, w: torch.randn(b, 3, h, w),
    sizes=((2, 8, 6), (1, 5, 9), (3, 2, 1)),
)


def _global(pool: Callable[..., Tensor]) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """One value for each channel, one for each row, and halves of the rows."""
    return lambda x: (pool(x, x.shape[2:]), pool(x, (1, x.shape[3])), pool(x, kernel_size=[2, x.shape[3]]))


@_row(
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


@_row(
    *(f"nn.functional.max_pool{n}d" for n in (1, 2, 3)),
    name="maximum-of-whole-axes",
    case=_global(functional.max_pool2d),
    unchanged=lambda x: functional.max_pool2d(x, 2),
)
def largest(
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
    kernel, pads = list(kernel_size), _each(padding, rank)
    steps = list(kernel) if stride is None or stride in ((), []) else _each(stride, rank)
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


def _each(value: object, rank: int) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value] * rank
