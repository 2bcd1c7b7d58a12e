"""Writes into diagonals and places, reductions by index and by segment, and the same of tensors without axes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import missing, op
from onnxpatch.formulas.repeats import sources
from onnxpatch.formulas.tries import numbers

_lacking = functools.partial(missing, exporters=("trace",))


def _diagonals(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.diagonal_scatter(x[:, :, 0], 1, 1, 2), torch.diagonal_scatter(x[0, :, :-2], x[0, :, 0] * 2)


def _wide(b: int, n: int) -> Tensor:
    return torch.randn(b, n, n + 2)


@op("diagonal_scatter", why=_lacking("aten::diagonal_scatter"), tries=_wide, case=_diagonals)
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """`input` with `src` on a diagonal."""
    rank = input.dim()
    axes, last_two = (dim1 % rank, dim2 % rank), (rank - 2, rank - 1)
    x = input.movedim(axes, last_two)
    rows, columns = (torch.arange(x.shape[axis], device=x.device) for axis in (-2, -1))
    # The element of a diagonal is numbered by its row, or by its column below the main one.
    place = rows if offset >= 0 else rows + offset
    last = torch.ones_like(src[..., :1]).new_zeros(()).to(torch.int64) + src.shape[-1] - 1
    spread = src.index_select(-1, torch.minimum(place.clamp(min=0), last)).unsqueeze(-1)
    on = (rows[:, None] + offset) == columns
    return torch.where(on, spread, x).movedim(last_two, axes)


def _indexed(x: Tensor, index: Tensor) -> tuple[Tensor, ...]:
    start = torch.ones_like(x[:, :4])
    kinds = ("prod", "mean", "amax", "amin")
    return tuple(start.index_reduce(1, index, x, kind, include_self=kind != "amax") for kind in kinds)


def _rows(b: int, n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(b, n + 3, 2), torch.arange(n + 3) % 3


@op("index_reduce", why=missing("aten::index_reduce"), tries=_rows, case=_indexed, beside=("scatter-reduce",))
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """scatter_reduce with the same places in every row."""
    if not input.dim():
        found = index_reduce(input.reshape(1), 0, index, source.reshape(-1), reduce, include_self=include_self)
        return found.reshape(())
    shape = [-1 if axis == dim % input.dim() else 1 for axis in range(input.dim())]
    places = index.to(torch.int64).view(shape).expand(source.shape)
    return torch.scatter_reduce(input, dim, places, source, reduce, include_self=include_self)


def _put(b: int, n: int) -> tuple[Tensor, ...]:
    return torch.randn(b, n), torch.arange(b * n) // 2, torch.randn(b * n)


@op("put", why=missing("aten::put"), tries=_put,
    case=lambda x, at, values: (torch.put(x, at, values, True), x.put(at[::2], values[::2])))  # fmt: skip
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """The tensor with values written at places counted through all of it."""
    flat, places = input.reshape(-1), index.reshape(-1)
    write = flat.scatter_add if accumulate else flat.scatter
    return write(0, places, source.reshape(-1)).reshape(input.shape)


def _alone(x: Tensor) -> tuple[Tensor, ...]:
    one, at = x[0, 0], torch.zeros(1, dtype=torch.int64)
    written = one.index_add(0, at, one), one.index_copy(0, at, one * 2), one.index_fill(0, at, 3.0)
    return *written, one.index_select(0, at)


@op(
    "index_add",
    "index_copy",
    "index_fill",
    "index_select",
    name="index-of-one-number",
    why="data tensor must have rank >= 1: a tensor without axes, indexed",
    reason="rank|axis|out of data bounds",
    exporters=("trace",),
    tries=numbers,
    case=_alone,
    unchanged=lambda x: x.index_select(0, torch.zeros(1, dtype=torch.int64)),
)
def of_one_number(
    original: Callable[..., Tensor], input: Tensor, dim: int, index: Tensor, *rest: Any, **more: Any
) -> Tensor:
    """The same of an axis of one element."""
    if input.dim():
        return NotImplemented
    rest, more = tuple(_row(one) for one in rest), {name: _row(one) for name, one in more.items()}
    return getattr(torch, original.__name__)(input.reshape(1), 0, index, *rest, **more).reshape(())


def _row(one: object) -> object:
    return one.reshape(-1) if isinstance(one, Tensor) else one


# ------------------------------------------------------------------ segments
_EMPTY = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


def _segments(n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n + 3, 2), torch.tensor([2, 0, n, 1])


def _of_segments(x: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    ends = torch.cat((lengths.new_zeros(1), lengths.cumsum(0)))
    one = (
        torch.segment_reduce(x, "max", lengths=lengths, initial=1),
        torch.segment_reduce(x, "mean", lengths=lengths + 0),
    )
    return *one, torch.segment_reduce(x, "sum", offsets=ends), torch.segment_reduce(x, "min", offsets=ends)


@op("segment_reduce", why=missing("aten::segment_reduce", "aten::_segment_reduce"), tries=_segments, case=_of_segments,
    beside=("scatter-reduce",))  # fmt: skip
def segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: float | None = None,
) -> Tensor:  # fmt: skip
    """Each segment's sum, mean, product or extreme, along the first axis."""
    given = lengths if offsets is None else offsets
    if axis != 0 or given is None or given.dim() != 1:
        return NotImplemented
    counts = (given if offsets is None else given[1:] - given[:-1]).to(torch.int64)
    rows = data.reshape(data.shape[0], -1)
    places = sources(counts, data.shape[0]).unsqueeze(1).expand(rows.shape)
    empty = _EMPTY[reduce] if initial is None else initial
    # One more, for rows that are in no segment.
    start = torch.full_like(torch.cat((counts, counts[:1])).to(data.dtype).unsqueeze(1) + rows[:1] * 0, empty)
    kind = {"max": "amax", "min": "amin", "mean": "sum"}.get(reduce, reduce)
    found = torch.scatter_reduce(start, 0, places, rows, kind)[:-1]
    if reduce == "mean":
        # A mean over nothing is NaN, or the given one.
        count = counts.to(data.dtype).unsqueeze(1)
        found = torch.where(count > 0, found / count, found if initial is not None else found / count)
    return found.reshape([-1, *data.shape[1:]])
