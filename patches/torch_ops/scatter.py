"""Writes into places of a tensor, and repeats: scatter, one_hot, repeat_interleave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.repeats import repeated, sources
from onnxpatch.formulas.symbolic import symbolic


def _spread(index: Tensor, like: Tensor, dim: int) -> Tensor:
    """A 1-d index along `dim`, expanded to the shape of `like`."""
    shape = [-1 if axis == dim % like.dim() else 1 for axis in range(like.dim())]
    return index.view(shape).expand_as(like)


def _means(x: Tensor, cluster: Tensor) -> tuple[Tensor, ...]:
    index = cluster.unsqueeze(-1).expand_as(x)
    start = torch.ones(x.shape[0], 4, 6)
    mean = start.scatter_reduce(1, index, x, "mean", include_self=False)
    largest = start.scatter_reduce(1, index, x, "amax", include_self=False)
    return mean, start.scatter_reduce(1, index, x, "mean"), largest


@op(
    "scatter_reduce",
    "scatter_reduce_",
    why="ONNX does not support mean reduction / include_self=False for scatter_reduce; wrong means from dynamo",
    reason="relative error|mean reduction",
    link="https://github.com/pytorch/pytorch/issues/97337",
    tries=lambda b, n: (torch.randn(b, n, 6), torch.randint(0, 4, (b, n))),
    case=_means,
)
def scatter_reduce(
    original: Callable[..., Tensor],
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """Computes means as sum / count. Without `include_self`, written elements start from the neutral element."""
    result = _reduced(input, dim, index, src, reduce, include_self)
    return input.copy_(result) if original.__name__.endswith("_") else result


_NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0}


def _reduced(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool) -> Tensor:
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


def _neutral(input: Tensor, reduce: str) -> Tensor:
    limits = torch.finfo(input.dtype) if input.is_floating_point() else torch.iinfo(input.dtype)
    value = {"amax": limits.min, "amin": limits.max, **_NEUTRAL}[reduce]
    return torch.full_like(input, value)


def _accumulated(x: Tensor, row: Tensor) -> tuple[Tensor, ...]:
    table = torch.zeros(4, 6)
    return table.index_add(0, row, x, alpha=2), table.index_put((row,), x, accumulate=True)


@op(
    "index_add",
    "index_add_",
    "index_put",
    "Tensor.index_put_",
    why="index_add and index_put(accumulate=True) export silently wrong when an index occurs twice",
    reason="index_add",
    link="https://github.com/pytorch/pytorch/issues/90650",
    exporters=("trace",),
    # More rows than indices, so that some index occurs twice.
    tries=lambda n: (torch.randn(n, 6), torch.randint(0, 4, (n,))),
    sizes=(10, 24, 7),
    case=_accumulated,
)
def index_add(original: Callable[..., Tensor], input: Tensor, **given: Any) -> Tensor:
    """Writes index_add as scatter_add, whose ONNX form accumulates."""
    result = _put(input, **given) if "index_put" in original.__name__ else _added(input, **given)
    written = original.__name__.endswith("_") and result is not NotImplemented
    return input.copy_(result) if written else result


def _added(input: Tensor, dim: int, index: Any, source: Tensor, alpha: Any = 1) -> Tensor:
    if not input.dim():
        return NotImplemented
    return input.scatter_add(dim, _spread(index, source, dim), source * alpha)


def _put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    one_row = len(indices) == 1 and indices[0].dim() == 1 and indices[0].dtype == torch.int64
    if not accumulate or not one_row:
        return NotImplemented
    rows = values.expand([*indices[0].shape, *input.shape[1:]])
    return input.scatter_add(0, _spread(indices[0], rows, 0), rows)


def _blocks(x: Tensor) -> Tensor:
    """The sum of every three tokens."""
    length = x.shape[1]
    block = torch.arange(length) // 3
    return x.transpose(1, 2) @ torch.nn.functional.one_hot(block, (length + 2) // 3).to(x.dtype)


@op(
    "one_hot",
    name="one-hot-of-a-size",
    why="Eq(s27//4, 2): torch's one_hot takes a number of classes as a constant, that of the example",
    reason="shape|relative error",
    link="https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/Onehot.cpp",
    exporters=("dynamo",),
    tries=lambda batch, length: torch.randn(batch, length, 4),
    sizes=((2, 7), (3, 12), (1, 2)),
    case=_blocks,
    unchanged="fixed sizes",
)
def one_hot(input: Tensor, num_classes: Any = -1) -> Tensor:
    """Every class is compared with every element. A number of classes that is a constant is left to the exporter."""
    if isinstance(num_classes, int) and num_classes == -1:  # as many as the data needs
        num_classes = input.amax().to(torch.int64).item() + 1
    if not symbolic(num_classes):
        return NotImplemented
    return (input[..., None] == torch.arange(num_classes, device=input.device)).to(torch.int64)


@op(
    "repeat_interleave",
    name="repeat-by-counts",
    why="the exported graph compares every place with every count: 10,000 elements take 1.5 GB",
    link="https://github.com/pytorch/pytorch/issues/128505",
    tries=lambda batch: (torch.randn(batch, 3), torch.arange(batch) % 3),
    sizes=(4, 5, 2),
    case=lambda x, counts: x.repeat_interleave(counts, 0),
    leaner=("dynamo", "trace"),
)
def repeat_by_counts(
    input: Tensor, repeats: object = None, dim: int | None = None, *, output_size: object = None
) -> Tensor:
    """The indices are the running sum of a 1 at the end of each element; see `formulas.repeats`."""
    if repeats is None:  # repeat_interleave(counts), which returns indices
        return sources(input, output_size)
    if not isinstance(repeats, Tensor) or repeats.dim() == 0 or repeats.shape[0] == 1:
        return NotImplemented
    source, dim = (input.flatten(), 0) if dim is None else (input, dim % input.dim())
    return repeated(source, repeats, dim, output_size)


@op(
    "repeat_interleave",
    why="Unsupported: ONNX export of operator repeat_interleave along dimension with unknown input size; "
    "with a negative dim, other constants of that value change too: a reshape to -1 becomes one to 1",
    reason="shape",
    link="https://github.com/pytorch/pytorch/issues/128505",
    exporters=("trace",),
    tries=lambda batch: torch.randn(batch, 6, 4),
    sizes=(2, 5, 1),
    case=lambda x: x.repeat_interleave(2, -1).reshape(x.shape[0], 2, -1),
)
def repeat_interleave(
    input: Tensor, repeats: object = None, dim: int | None = None, output_size: object = None
) -> Tensor:
    """Repeats by expand and reshape: (…, n, …) -> (…, n, 1, …) -> (…, n * repeats, …)."""
    if repeats is None or (isinstance(repeats, Tensor) and repeats.dim() > 0 and repeats.shape[0] != 1):
        return NotImplemented  # one count for each element
    return _repeated(input, repeats.reshape(()) if isinstance(repeats, Tensor) else repeats, dim)


def _prompts(text: Tensor, film: Tensor) -> tuple[Tensor, Tensor]:
    """The text of each film, and a mask's sizes, once for each frame."""
    frames = film.shape[1]
    return text.repeat_interleave(frames, dim=0, output_size=text.shape[0] * frames), text.repeat_interleave(frames, -1)


@op(
    "repeat_interleave",
    name="repeat-by-a-size",
    why="invalid expand shape: where the count is a size, the exporter repeats the axis before the one asked for",
    reason="invalid expand shape|shape|broadcast",
    link="https://github.com/microsoft/onnxscript/blob/main/onnxscript/function_libs/torch_lib/ops/core.py",
    exporters=("dynamo",),
    tries=lambda n, frames: (torch.randn(n, 3, 4), torch.randn(n, frames)),
    sizes=((2, 3), (5, 1), (3, 4)),
    case=_prompts,
    unchanged="fixed sizes",
)
def repeat_by_a_size(
    input: Tensor, repeats: object = None, dim: int | None = None, *, output_size: object = None
) -> Tensor:
    """The same; a count that is a constant is left to the exporter."""
    if isinstance(repeats, Tensor) or not symbolic(repeats):
        return NotImplemented
    return _repeated(input, repeats, dim)


def _repeated(input: Tensor, repeats: Any, dim: int | None) -> Tensor:
    source, dim = (input.flatten(), 0) if dim is None else (input, dim % input.dim())
    times = [-1] * (source.dim() + 1)
    times[dim + 1] = repeats
    return source.unsqueeze(dim + 1).expand(times).flatten(dim, dim + 1)
