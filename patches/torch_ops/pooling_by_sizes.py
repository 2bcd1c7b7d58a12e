"""Pooling whose windows are made of sizes: to an output of any size, or over a whole axis."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import exporting, op
from onnxpatch.formulas.pooled_maxima import largest_under, places_under
from onnxpatch.formulas.resize import Axis, resize
from onnxpatch.formulas.symbolic import same_size


def _pyramid(pool: Callable[..., Tensor]) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """Pooled to several grids, as PSPNet, UPerNet and spatial pyramids do."""
    return lambda x: tuple(pool(x, size) for size in (1, 3, (2, 4), (None, 2)))


_adaptive = functools.partial(
    op,
    why="Unsupported: ONNX export of operator adaptive_avg_pool2d, input size not accessible / output size that are "
    "not factor of input size; with dynamic sizes the windows of the example stay",
    reason="GatherND|static shape|adaptive_(avg|max)_pool2d",
    link="https://github.com/pytorch/pytorch/issues/64806",
    # Windows of one length, windows of two, and a map with fewer cells than windows.
    tries=lambda b, h, w: torch.randn(b, 3, h, w),
    sizes=((2, 7, 10), (1, 4, 5), (2, 3, 3), (3, 12, 9)),
    unchanged="fixed sizes",
)


@_adaptive(
    *(f"nn.functional.adaptive_avg_pool{n}d" for n in (1, 2, 3)),
    name="adaptive-average-pooling",
    case=_pyramid(functional.adaptive_avg_pool2d),
)
def adaptive_average(original: Callable[..., Tensor], input: Tensor, output_size: object) -> Tensor:
    """Computes the means by one matrix product for each axis."""
    # The digit in adaptive_avg_pool2d.
    spatial = int(original.__name__[-2])
    sizes = _sizes(input, output_size, spatial)
    if not _ours(input, sizes):
        return NotImplemented
    # torch takes a single map without a batch, too.
    batched = input if input.dim() == spatial + 2 else input[None]
    pooled = resize(batched, [Axis(size) for size in sizes], "area")
    return pooled if batched is input else pooled[0]


@_adaptive(
    *(f"nn.functional.adaptive_max_pool{n}d{rest}" for n in (1, 2, 3) for rest in ("", "_with_indices")),
    name="adaptive-max-pooling",
    case=_pyramid(lambda x, size: functional.adaptive_max_pool2d(x, size, return_indices=size == 3)),
)
def adaptive_max(
    original: Callable[..., object], input: Tensor, output_size: object, return_indices: bool = False
) -> object:
    """Computes the maximum in each window, one axis after the other."""
    spatial = int(original.__name__[-2]) if original.__name__[-1] == "d" else input.dim() - 2
    sizes = _sizes(input, output_size, spatial)
    if not input.is_floating_point() or not _ours(input, sizes):
        return NotImplemented
    if return_indices or original.__name__.endswith("_with_indices"):
        return places_under(input, sizes)
    # A maximum over a rectangle is the maximum over its rows' maxima, so axes may be taken one by one.
    for position, size in enumerate(sizes):
        input = _largest(input, position - spatial, size)
    return input


def _largest(x: Tensor, dim: int, size: object) -> Tensor:
    if isinstance(size, int) and size == 1:
        # One window covers all: nothing has to be gathered.
        return x.amax(dim, keepdim=True)
    return largest_under(x, dim, size)


def _sizes(input: Tensor, output_size: object, spatial: int) -> list[object]:
    asked = list(output_size) if isinstance(output_size, tuple | list) else [output_size] * spatial
    lengths = input.shape[-spatial:]
    # None keeps the size of that axis.
    return [length if size is None else size for size, length in zip(asked, lengths, strict=True)]


def _ours(input: Tensor, sizes: list[object]) -> bool:
    """Whether windows depend on a dynamic size. One global window is right without a patch."""
    if all(isinstance(size, int) and size == 1 for size in sizes):
        return False
    # Under trace a dynamic size looks like a static one: both are tensors.
    numbers = (*sizes, *input.shape[-len(sizes) :])
    return exporting() == "trace" or not all(isinstance(number, int) for number in numbers)


_of_whole_axes = functools.partial(
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
