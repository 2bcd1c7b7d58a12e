"""Scatters with repeated indices: means, which ONNX lacks, and sums, which the exporters lose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from onnxpatch import Proof, patch


def _spread(index: torch.Tensor, like: torch.Tensor, dim: int) -> torch.Tensor:
    """A 1-d index along `dim`, expanded to the shape of `like`."""
    shape = [-1 if axis == dim % like.dim() else 1 for axis in range(like.dim())]
    return index.view(shape).expand_as(like)


class _Means(torch.nn.Module):
    def forward(self, x: torch.Tensor, cluster: torch.Tensor) -> tuple[torch.Tensor, ...]:
        index = cluster.unsqueeze(-1).expand_as(x)
        start = torch.ones(x.shape[0], 4, 6)
        mean = start.scatter_reduce(1, index, x, "mean", include_self=False)
        largest = start.scatter_reduce(1, index, x, "amax", include_self=False)
        return mean, start.scatter_reduce(1, index, x, "mean"), largest


@patch(
    "torch.scatter_reduce",
    "torch.Tensor.scatter_reduce",
    "torch.Tensor.scatter_reduce_",
    name="scatter-reduce",
    why="ONNX does not support mean reduction / include_self=False for scatter_reduce; wrong means from dynamo",
    link="https://github.com/pytorch/pytorch/issues/97337",
    proof=Proof(
        build=_Means,
        inputs=lambda: [(torch.randn(b, n, 6), torch.randint(0, 4, (b, n))) for b, n in ((2, 5), (3, 9), (1, 4))],
        dynamic_shapes=({0: "batch", 1: "length"}, {0: "batch", 1: "length"}),
        fails=("trace", "dynamo"),
        reason="relative error|mean reduction",
    ),
)
def scatter_reduce(
    original: Callable[..., torch.Tensor],
    input: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    src: torch.Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> torch.Tensor:
    """Computes means as sum / count. Without `include_self`, written elements start from the neutral element."""
    result = _reduced(input, dim, index, src, reduce, include_self)
    return input.copy_(result) if original.__name__.endswith("_") else result


_NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0}


def _reduced(
    input: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, reduce: str, include_self: bool
) -> torch.Tensor:
    zeros = torch.zeros_like(input)
    # torch reads as much of `src` as the index names; ONNX's ScatterElements wants equal shapes.
    src = src[tuple(slice(0, n) for n in index.shape)] if src.shape != index.shape else src
    start = input
    if not include_self or reduce == "mean":
        count = zeros.scatter_add(dim, index, torch.ones_like(src))
        # Elements that are not written keep their value; the count tells which these are.
        start = input if include_self else torch.where(count > 0, _neutral(input, reduce), input)
    if reduce in ("amax", "amin", "prod"):
        return torch.scatter_reduce(start, dim, index, src, reduce)
    total = start.scatter_add(dim, index, src)
    if reduce == "sum":
        return total
    # At least 1, for the elements that are not written: they are divided by it too.
    count = count + 1 if include_self else count.clamp(min=1)
    return total / count if input.is_floating_point() else torch.div(total, count, rounding_mode="floor")


def _neutral(input: torch.Tensor, reduce: str) -> torch.Tensor:
    limits = torch.finfo(input.dtype) if input.is_floating_point() else torch.iinfo(input.dtype)
    value = {"amax": limits.min, "amin": limits.max, **_NEUTRAL}[reduce]
    return torch.full_like(input, value)


class _Accumulated(torch.nn.Module):
    def forward(self, x: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, ...]:
        table = torch.zeros(4, 6)
        return table.index_add(0, row, x, alpha=2), table.index_put((row,), x, accumulate=True)


@patch(
    "torch.index_add",
    "torch.Tensor.index_add",
    "torch.Tensor.index_add_",
    "torch.index_put",
    "torch.Tensor.index_put",
    "torch.Tensor.index_put_",
    name="index-add",
    why="index_add and index_put(accumulate=True) export silently wrong when an index occurs twice",
    link="https://github.com/pytorch/pytorch/issues/90650",
    exporters=("trace",),
    proof=Proof(
        build=_Accumulated,
        # More rows than indices, so that some index occurs twice.
        inputs=lambda: [(torch.randn(n, 6), torch.randint(0, 4, (n,))) for n in (10, 24, 7)],
        dynamic_shapes=({0: "rows"}, {0: "rows"}),
        fails=("trace",),
        reason="index_add",
    ),
)
def index_add(original: Callable[..., torch.Tensor], input: torch.Tensor, **given: Any) -> torch.Tensor:
    """Writes index_add as scatter_add, whose ONNX form accumulates."""
    result = _put(input, **given) if "index_put" in original.__name__ else _added(input, **given)
    written = original.__name__.endswith("_") and result is not NotImplemented
    return input.copy_(result) if written else result


def _added(input: torch.Tensor, dim: int, index: Any, source: torch.Tensor, alpha: Any = 1) -> torch.Tensor:
    return input.scatter_add(dim, _spread(index, source, dim), source * alpha)


def _put(input: torch.Tensor, indices: Any, values: torch.Tensor, accumulate: bool = False) -> torch.Tensor:
    one_row = len(indices) == 1 and indices[0].dim() == 1 and indices[0].dtype == torch.int64
    if not accumulate or not one_row:
        return NotImplemented
    rows = values.expand([*indices[0].shape, *input.shape[1:]])
    return input.scatter_add(0, _spread(indices[0], rows, 0), rows)
