"""Pooling to an output of any size (adaptive), and with windows that are drawn (fractional)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import exporting, missing, op
from onnxpatch.formulas.resize import Axis, resize
from onnxpatch.formulas.symbolic import as_tensor, counted
from onnxpatch.formulas.windows import on_each_axis


def _pyramid(pool: Callable[..., Tensor]) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """Pooled to several grids, as PSPNet, UPerNet and spatial pyramids do."""
    return lambda x: tuple(pool(x, size) for size in (1, 3, (2, 4), (None, 2)))


_maxima = _pyramid(lambda x, size: functional.adaptive_max_pool2d(x, size, return_indices=size == 3))
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
    sizes = on_each_axis(output_size, spatial)
    if not _ours(input, sizes):
        return NotImplemented
    # torch takes a single map without a batch, too.
    batched = input if input.dim() == spatial + 2 else input[None]
    lengths = input.shape[-spatial:]
    kept = [length if size is None else size for size, length in zip(sizes, lengths, strict=True)]
    pooled = resize(batched, [Axis(size) for size in kept], "area")
    return pooled if batched is input else pooled[0]


@_adaptive(
    *(f"nn.functional.adaptive_max_pool{n}d{rest}" for n in (1, 2, 3) for rest in ("", "_with_indices")),
    name="adaptive-max-pooling",
    case=lambda x: (_maxima(x), _maxima(x[0])),  # torch takes a single map without a batch, too
)
def adaptive_max(
    original: Callable[..., object], input: Tensor, output_size: object, return_indices: bool = False
) -> object:
    """Computes the maximum in each window, one axis after the other."""
    spatial = int(original.__name__.partition("pool")[2][0])
    sizes = on_each_axis(output_size, spatial)
    # Of a map without a batch, torch's pool of all of it leaves an axis.
    alone = input.dim() == spatial + 1 and exporting() == "trace"
    if not input.is_floating_point() or not (alone or _ours(input, sizes)):
        return NotImplemented
    if return_indices or original.__name__.endswith("_with_indices"):
        return places_under(input, sizes)
    # A maximum over a rectangle is the maximum over its rows' maxima, so axes may be taken one by one.
    for position, size in enumerate(sizes):
        input = _largest(input, position - spatial, size)
    return input


def _largest(x: Tensor, dim: int, size: object) -> Tensor:
    if size is None:
        return x
    if isinstance(size, int) and size == 1:
        # One window covers all: nothing has to be gathered.
        return x.amax(dim, keepdim=True)
    return largest_under(x, dim, size)


def _ours(input: Tensor, sizes: list[object]) -> bool:
    """Whether windows depend on a dynamic size. One global window is right without a patch. None keeps an axis."""
    if all(isinstance(size, int) and size == 1 for size in sizes):
        return False
    # Under trace a dynamic size looks like a static one: both are tensors.
    numbers = (*sizes, *input.shape[-len(sizes) :])
    return exporting() == "trace" or not all(isinstance(number, int) for number in numbers if number is not None)


def largest_under(x: Tensor, dim: int, size: Any) -> Tensor:
    """Adaptive max pooling along one axis to `size` entries; axis and size as F.adaptive_max_pool1d has them.

    Window i reaches from floor(i n / size) to ceil((i + 1) n / size). As many entries are gathered for each window as
    the longest may have; in shorter windows the last entry is repeated.
    """
    axis = dim % x.dim()
    return _windows(x, axis, size).amax(axis + 1)


def places_under(x: Tensor, sizes: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """(Maxima, their places in a map as one axis) of an adaptive max pooling of the last axes to these sizes."""
    rank, lead = len(sizes), x.dim() - len(sizes)
    # Of each element of a map, which one it is; an axis that was cut into windows has become two.
    table = torch.ones_like(x[(0,) * lead], dtype=torch.int64).reshape(-1).cumsum(0).reshape(x.shape[lead:]) - 1
    for axis, size in zip(range(0, 2 * rank, 2), sizes, strict=True):
        table = table.unsqueeze(axis + 1) if size is None else _windows(table, axis, size)
    table = table.permute([*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)]).flatten(rank)
    table = table.expand([*x.shape[:lead], *table.shape])
    # One number after the other: onnxruntime's GatherElements takes a tenth of its Gather.
    windows = x.flatten(lead).gather(-1, table.flatten(lead)).reshape(table.shape)
    best = windows.argmax(-1)
    # Of one dimension, where that takes a tenth of what it takes of many.
    rows = torch.arange(best.flatten().shape[0], device=x.device) * windows.shape[-1]
    values, places = (one.flatten().gather(0, best.flatten() + rows).reshape(best.shape) for one in (windows, table))
    return values, places


def _windows(x: Tensor, axis: int, size: Any) -> Tensor:
    """x with two axes for one: windows, and the entries of each, the last one again and again where it is shorter."""
    length, count = (as_tensor(number, torch.int64, x.device) for number in (x.shape[axis], size))
    outputs = torch.arange(size, device=x.device)
    # All numbers are at least 0, where trunc is floor, and is what ONNX's Div of whole numbers does.
    starts = torch.div(outputs * length, count, rounding_mode="trunc")
    lasts = torch.div((outputs + 1) * length + count - 1, count, rounding_mode="trunc") - 1
    # Between its floor and its ceil a window may reach one entry beyond ceil(n / size).
    width = (x.shape[axis] + size - 1) // size + 1
    places = torch.minimum(starts.unsqueeze(1) + torch.arange(width, device=x.device), lasts.unsqueeze(1))
    return x.index_select(axis, places.reshape(-1)).reshape([*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]])


def _fractions(x: Tensor, shares: Tensor) -> tuple[Tensor, ...]:
    pool = functional.fractional_max_pool2d(x, 3, (3, 4), _random_samples=shares)
    volume = functional.fractional_max_pool3d(
        x[:, None], (1, 3, 2), 2, _random_samples=shares.repeat(1, 1, 2)[:, :1, 1:]
    )
    return pool, volume, functional.fractional_max_pool2d(x[0], (3, 2), 2), functional.fractional_max_pool2d(x, 2, 1)


@op(
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    name="fractional-max-pooling",
    why=missing("aten::fractional_max_pool2d", "aten::fractional_max_pool3d"),
    reason="fractional_max_pool|static shape",
    tries=lambda b, h: (torch.randn(b, 3, h + 4, 8), torch.rand(b, 3, 2)),
    case=_fractions,
)
def fractional_max(
    original: Callable[..., object],
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: object = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor:
    """Computes the maximum in each window, one axis after the other. What is drawn is one number for each."""
    if return_indices or "with_indices" in original.__name__:
        return NotImplemented
    rank = 3 if "3d" in original.__name__ else 2
    each = [on_each_axis(n, rank) for n in (kernel_size, output_size, output_ratio)]
    x = input.flatten(0, -rank - 1)
    drawn = torch.rand([x.shape[0], rank], dtype=x.dtype) if _random_samples is None else _random_samples
    drawn = drawn.reshape(-1, rank).to(x.device)
    drawn = drawn.flip(1) if rank == 2 else drawn  # of a map the first number is for its rows
    for at, (width, size, ratio) in enumerate(zip(*each, strict=True)):
        length = counted(x.shape[at + 1], x)
        size = (length.to(torch.float64) * ratio).to(torch.int64) if size is None else size
        last, ticks = length - width, torch.arange(size, device=x.device)
        step, share = last.to(x.dtype) / (torch.ones_like(ticks).sum() - 1).clamp(min=1), drawn[:, at : at + 1]
        starts = torch.floor((ticks + share) * step) - torch.floor(share * step)
        starts = torch.where(ticks == size - 1, last, starts.to(torch.int64))
        places = (starts.unsqueeze(-1) + torch.arange(width, device=x.device)).flatten(1)
        index = places.reshape([-1, *(size * width if axis == at else 1 for axis in range(rank))])
        index = index.expand([*x.shape[: at + 1], size * width, *x.shape[at + 2 :]])
        windows = x.gather(at + 1, index)
        x = windows.reshape([*x.shape[: at + 1], size, width, *x.shape[at + 2 :]]).amax(at + 2)
    return x.reshape([*input.shape[:-rank], *x.shape[1:]])
