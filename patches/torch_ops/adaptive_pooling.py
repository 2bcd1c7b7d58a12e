"""Adaptive pooling of maps of any size to any output size: the graph computes which cells a window covers."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import exporting, op
from onnxpatch.formulas.pooled_maxima import largest_under, places_under
from onnxpatch.formulas.resize import Axis, resize


def _pyramid(pool: Callable[..., Tensor]) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """Pooled to several grids, as PSPNet, UPerNet and spatial pyramids do."""
    return lambda x: tuple(pool(x, size) for size in (1, 3, (2, 4), (None, 2)))


_row = functools.partial(
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


@_row(
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


@_row(
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
