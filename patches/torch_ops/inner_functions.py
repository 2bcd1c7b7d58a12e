"""Functions beneath torch's layers, called by themselves: parts of backward passes, statistics, unchecked forms."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import missing, op
from onnxpatch.formulas.symbolic import counted
from onnxpatch.formulas.tries import maps, matrices, pairs

_ATEN = torch.ops.aten
_lacking = functools.partial(missing, exporters=("trace",))


# ------------------------------------------------------------------ backward passes
@op(
    "ops.aten._softmax_backward_data",
    "ops.aten._softmax_backward_data.default",
    why=_lacking("aten::_softmax_backward_data"),
    tries=pairs,
    name="softmax-backward",
    case=lambda x, y: _ATEN._softmax_backward_data(x, y, 1, torch.float32),
)
def softmax_backward(grad_output: Tensor, output: Tensor, dim: int = -1, input_dtype: Any = None) -> Tensor:
    """The slope of a softmax, from its result."""
    part = grad_output * output
    return (part - output * part.sum(dim, keepdim=True)).to(output.dtype if input_dtype is None else input_dtype)


@op(
    "ops.aten.native_dropout_backward",
    "ops.aten.native_dropout_backward.default",
    why=_lacking("aten::native_dropout_backward"),
    tries=pairs,
    name="dropout-backward",
    case=lambda x, y: _ATEN.native_dropout_backward(x, y > 0, 2.0),
)
def dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    """What came through, scaled."""
    return grad_output * mask.to(grad_output.dtype) * scale


@op(
    "ops.aten._safe_softmax",
    "ops.aten._safe_softmax.default",
    why=_lacking("aten::_safe_softmax"),
    tries=matrices,
    name="safe-softmax",
    case=lambda x: _ATEN._safe_softmax(torch.where(x[:, :1] > 0, -torch.inf, x), 1),
)
def safe_softmax(self: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """A softmax, 0 where all is -inf."""
    x = self if dtype is None else self.to(dtype)
    nothing = x.amax(dim, keepdim=True) == -torch.inf
    return torch.where(nothing, torch.zeros_like(x), torch.softmax(torch.where(nothing, torch.zeros_like(x), x), dim))


# ------------------------------------------------------------------ normalization, with its statistics
def _group(x: Tensor) -> tuple[Tensor, ...]:
    return torch.native_group_norm(x, x[0, :, 0, 0] * 1, None, x.shape[0], 4, x.shape[2] * x.shape[3], 2, 1e-3)


@op(
    "native_group_norm",
    why=_lacking("aten::native_group_norm"),
    case=_group,
    tries=lambda b, h, w: torch.randn(b, 4, h, w),
)
def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: Any, C: Any, HxW: Any, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The normalized groups, their means, and the reciprocals of their deviations."""
    rows = input.reshape(input.shape[0], group, -1)
    mean = rows.mean(-1, keepdim=True)
    spread = torch.rsqrt(((rows - mean) * (rows - mean)).mean(-1, keepdim=True) + eps)
    found = ((rows - mean) * spread).reshape(input.shape)
    shape = [1, -1] + [1] * (input.dim() - 2)
    found = found if weight is None else found * weight.reshape(shape)
    found = found if bias is None else found + bias.reshape(shape)
    return found, mean.squeeze(-1), spread.squeeze(-1)


# ------------------------------------------------------------------ unchecked forms
def _masked(x: Tensor) -> tuple[Tensor, Tensor]:
    mask, at = x[:1, :3].reshape(-1) > 0, torch.arange(3) - 1
    found = _ATEN._unsafe_masked_index(x, mask, [at, at], -2.0)
    return found, _ATEN._unsafe_masked_index_put_accumulate(x, mask, [at, at], found)


@op(
    "torch._unsafe_masked_index",
    "ops.aten._unsafe_masked_index",
    name="unsafe-masked-index",
    why=_lacking("aten::_unsafe_masked_index"),
    case=_masked,
    tries=lambda b, n: torch.randn(b + 1, n + 3),
    beside=("unsafe-masked-index-put-accumulate",),
)
def _unsafe_masked_index(input: Tensor, mask: Tensor, indices: Any, fill: float = 0.0) -> Tensor:
    """Elements at places; a number where the mask is off, whatever the place there."""
    found = input[_within(input, indices)]
    return torch.where(mask, found, torch.full_like(found, fill))


@op(
    "torch._unsafe_masked_index_put_accumulate",
    "ops.aten._unsafe_masked_index_put_accumulate",
    name="unsafe-masked-index-put-accumulate",
    case=_masked,
    why=_lacking("aten::_unsafe_masked_index_put_accumulate", "aten::_unsafe_masked_index"),
    tries=lambda b, n: torch.randn(b + 1, n + 3),
    beside=("unsafe-masked-index",),
)
def _unsafe_masked_put(input: Tensor, mask: Tensor, indices: Any = (), values: Any = 0) -> Tensor:
    """The tensor with values added at places, where the mask is on."""
    # By places in the whole tensor: several indices broadcast with each other.
    ticks = torch.arange(input.numel(), device=input.device) if not input.dim() else None
    places = torch.ones_like(input, dtype=torch.int64).reshape(-1).cumsum(0).reshape(input.shape) - 1
    places = places[_within(input, indices)] if ticks is None else ticks
    written = torch.where(mask, values, torch.zeros_like(values)).expand(places.shape)
    return input.reshape(-1).scatter_add(0, places.reshape(-1), written.reshape(-1)).reshape(input.shape)


def _within(x: Tensor, indices: Any) -> tuple[Any, ...]:
    """The places, those outside of the axis moved to its ends. Negative ones count from the end."""
    found: list[Any] = []
    for axis, one in enumerate(indices):
        size = counted(x.shape[axis], x)
        inside = None if one is None else torch.minimum(torch.maximum(one, -size), size - 1)
        found.append(slice(None) if inside is None else torch.where(inside < 0, inside + size, inside))
    return tuple(found)


@op(
    "torch._chunk_cat",
    "ops.aten._chunk_cat",
    name="chunk-cat",
    why=_lacking("aten::_chunk_cat"),
    tries=matrices,
    case=lambda x: (_ATEN._chunk_cat([x, x * 2], 1, 2), _ATEN._chunk_cat([x, x[0]], 0, 3)),
)
def chunk_cat(tensors: Any, dim: int, num_chunks: int) -> Tensor:
    """Each tensor in so many chunks along an axis, padded with zeros; row by row flattened, and joined."""
    rows = []
    for x in tensors:
        axis = dim % x.dim()
        size = x.shape[axis]
        each = torch.div(size + num_chunks - 1, num_chunks, rounding_mode="floor")
        shape = [*x.shape[:axis], each * num_chunks - size, *x.shape[axis + 1 :]]
        whole = torch.cat((x, x.new_zeros(shape)), axis)
        rows.append(whole.reshape([*x.shape[:axis], num_chunks, -1]))
    return torch.cat(rows, -1)


op(
    "unsafe_chunk",
    why=_lacking("aten::unsafe_chunk"),
    reason="unsafe_chunk",
    tries=lambda n: torch.randn(n, 6),
    sizes=(6, 9, 4),
    case=lambda x: torch.unsafe_chunk(x, 2, 0),
    to=lambda x, chunks, dim=0: x.chunk(chunks, dim),
)
op(
    "new_empty_strided",
    why=_lacking("aten::new_empty_strided"),
    tries=pairs,
    case=lambda x, y: torch.zeros_like(x.new_empty_strided((2, 3), (3, 1))) + x.sum(),
    to=lambda x, size, stride, **more: x.new_zeros(size, **more),
)
op(
    "grid_sampler_2d",
    why=_lacking("aten::grid_sampler_2d"),
    tries=lambda b, h, w: (torch.randn(b, 2, h, w), torch.rand(b, 3, w, 2)),
    case=lambda x, grid: torch.grid_sampler_2d(x, grid, 0, 1, True),
    to=lambda x, grid, mode, pad, corners: _sampled(x, grid, mode, pad, corners),
)
op(
    "grid_sampler_3d",
    why=_lacking("aten::grid_sampler_3d"),
    beside=("sampled-volumes",),
    tries=lambda b, h, w: (torch.randn(b, 2, h, w, 3), torch.rand(b, 3, w, 2, 3)),
    case=lambda x, grid: torch.grid_sampler_3d(x, grid, 0, 1, True),
    to=lambda x, grid, mode, pad, corners: _sampled(x, grid, mode, pad, corners),
)


def _sampled(x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> Tensor:
    names = ("bilinear", "nearest", "bicubic")[mode], ("zeros", "border", "reflection")[padding]
    return functional.grid_sample(x, grid, *names, align_corners=corners)


def _summed(x: Tensor, size: Any) -> Tensor:
    """The sum of all that was broadcast from this shape."""
    front = x.dim() - len(size)
    axes = [axis for axis in range(x.dim()) if axis < front or size[axis - front] == 1]
    found = x.sum(axes, keepdim=True) if axes else x.clone()
    return found.squeeze(tuple(range(front))) if front else found


op(
    "sum_to_size",
    why=_lacking("aten::sum_to_size"),
    tries=matrices,
    case=lambda x: (x.sum_to_size(1, 1), x.sum_to_size((x.shape[0], 1, 1))),
    to=_summed,
)


@op(
    "nonzero_static",
    why=missing("aten::nonzero_static"),
    tries=lambda b, n: torch.randint(0, 2, (b, n)),
    case=lambda x: (torch.nonzero_static(x, size=7), x.nonzero_static(size=2, fill_value=5)),
)
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The first places that are not 0, filled up with a number."""
    found = input.nonzero()
    return torch.cat((found, found.new_full((size, input.dim()), fill_value)))[:size]


@op(
    "combinations",
    why=missing("aten::combinations"),
    reason="combinations|[Uu]nbacked",
    tries=lambda n: torch.randn(n),
    sizes=(5, 7, 3),
    case=lambda x: (torch.combinations(x), torch.combinations(x, 2, True), torch.combinations(x, 3)),
)
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Each choice of r elements, in their order."""
    if r == 0:
        return NotImplemented
    ticks = torch.arange(input.shape[0], device=input.device)
    if r == 1:
        return input.reshape(-1, 1)
    grids = [grid.flatten() for grid in torch.meshgrid([ticks] * r, indexing="ij")]
    keep = torch.ones_like(grids[0], dtype=torch.bool)
    for one, other in itertools.pairwise(grids):
        keep = keep & (one <= other if with_replacement else one < other)
    return torch.stack([input[grid[keep]] for grid in grids], 1)


@op(
    "meshgrid",
    name="grid-of-one-axis",
    why="list index out of range: torch.meshgrid of one tensor",
    reason="list index",
    exporters=("trace",),
    tries=lambda n: torch.randn(n),
    case=lambda x: torch.meshgrid(x, indexing="xy"),
)
def one_axis(*tensors: Any, indexing: str | None = None) -> Any:
    """The one tensor."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], list | tuple) else tensors
    return (given[0].reshape(-1),) if len(given) == 1 else NotImplemented


op(
    "fill",
    why="torch.fill with a bool: We don't have an op for aten::full_like",
    reason="full_like",
    exporters=("trace",),
    tries=pairs,
    case=lambda x, y: torch.fill(x, True),
    to=lambda x, value: x.new_full(x.shape, float(value)) if isinstance(value, bool) else NotImplemented,
)
op(
    "Tensor.H",
    why=_lacking("aten::matrix_H"),
    tries=lambda b, n: torch.randn(b, n),
    case=lambda x: x.H @ x,
    to=lambda x: x.transpose(0, 1) if x.dim() == 2 and not x.is_complex() else NotImplemented,
)


def _pooled_back(x: Tensor) -> Tensor:
    values, places = functional.max_pool2d(x, 3, 2, 1, return_indices=True)
    return _ATEN.max_pool2d_with_indices_backward(values * 2, x, [3, 3], [2, 2], [1, 1], [1, 1], False, places)


@op(
    "ops.aten.max_pool2d_with_indices_backward",
    "ops.aten.max_pool2d_with_indices_backward.default",
    name="max-pool-backward",
    why=_lacking("aten::max_pool2d_with_indices_backward"),
    tries=maps,
    case=_pooled_back,
)
def max_pool_backward(grad_output: Tensor, self: Tensor, *options: Any) -> Tensor:
    """Each maximum's slope added at its place in its map."""
    places = options[-1]
    empty = torch.zeros_like(self).flatten(-2)
    return empty.scatter_add(-1, places.flatten(-2), grad_output.flatten(-2)).reshape(self.shape)
