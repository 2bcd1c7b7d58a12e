"""Writes into places, slices and diagonals of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import exporting, missing, op, untraced
from onnxpatch.formulas import nodes
from onnxpatch.patching.proof import matrices, numbers


def _spread(index: Tensor, like: Tensor, dim: int) -> Tensor:
    """A 1-d index along `dim`, expanded to the shape of `like`."""
    shape = [-1 if axis == dim % like.dim() else 1 for axis in range(like.dim())]
    return index.view(shape).expand_as(like)


def _means(x: Tensor, cluster: Tensor) -> tuple[Tensor, ...]:
    index = cluster.unsqueeze(-1).expand_as(x)
    start = torch.ones(x.shape[0], 4, 6)
    mean = start.scatter_reduce(1, index, x, "mean", include_self=False)
    largest = start.scatter_reduce(1, index, x, "amax", include_self=False)
    start.scatter_reduce_(1, index, x, "amin", include_self=False)
    return mean, start, torch.ones_like(start).scatter_reduce(1, index, x, "mean"), largest


@op(
    "scatter_reduce",
    why="ONNX does not support mean reduction / include_self=False for scatter_reduce; wrong means from dynamo",
    reason="relative error|mean reduction",
    link="https://github.com/pytorch/pytorch/issues/97337",
    tries=lambda b, n: (torch.randn(b, n, 6), torch.randint(0, 4, (b, n))),
    case=_means,
)
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Computes means as sum / count. Without `include_self`, written elements start from the neutral element."""
    # torch reads as much of `src` as the index names; ONNX's ScatterElements wants equal shapes.
    src = src[tuple(slice(0, n) for n in index.shape)] if src.shape != index.shape else src
    start = input
    if not include_self or reduce == "mean":
        count = torch.zeros_like(input).scatter_add(dim, index, torch.ones_like(src))
        # Elements that are not written keep their value; the count tells which these are.
        start = input if include_self else torch.where(count > 0, _neutral(input, reduce), input)
    if reduce in _REDUCTIONS and input.dim() and exporting() == "trace" and nodes.target_opset() >= 18:
        return nodes.run(_reduction(dim % input.dim(), reduce), start, index, src)
    if reduce in _REDUCTIONS:
        return torch.scatter_reduce(start, dim, index, src, reduce)
    total = start.scatter_add(dim, index, src)
    if reduce == "sum":
        return total
    # At least 1, for the elements that are not written: they are divided by it too.
    count = count + 1 if include_self else count.clamp(min=1)
    return total / count if input.is_floating_point() else torch.div(total, count, rounding_mode="floor")


def _parts(x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
    most = x.scatter(1, at[:, :2], x), x.clone().scatter_(1, at[:1], x * 2), x.scatter_add(1, at[:, :3], x)
    return *most, x.scatter(1, at[:, :1], x, reduce="add"), x.scatter(1, at[:, :1], 2.0, reduce="multiply")


@op(
    "scatter",
    "scatter_add",
    name="part-of-the-source",
    why="Indices vs updates dimensions differs: ONNX's ScatterElements takes no index smaller than the source",
    reason="updates dimensions differs|number of arguments|aten.scatter",
    tries=lambda b, n: (torch.randn(b, n), torch.arange(n).flip(0).expand(b, n)),
    case=_parts,
    beside=("scatter-reduce",),
)
def scatter(original: Callable[..., Tensor], input: Tensor, dim: int, index: Tensor, *rest: Any, **more: Any) -> Tensor:
    """As much of the source as the index names."""
    src: Any = rest[0] if rest else more.get("src", more.get("value"))
    if "reduce" in more:
        src = src if isinstance(src, Tensor) else torch.full_like(index, src, dtype=input.dtype)
        src = src if src.dim() else src.expand_as(index)
        return torch.scatter_reduce(input, dim, index, src, {"add": "sum", "multiply": "prod"}[more["reduce"]])
    if not isinstance(src, Tensor) or not src.dim() or src.shape == index.shape:
        return NotImplemented
    return original(input, dim, index, src[tuple(slice(0, n) for n in index.shape)])


_REDUCTIONS = {"amax": "max", "amin": "min", "prod": "mul"}


def _reduction(axis: int, reduce: str) -> nodes.Recipe:
    """One node. The trace exporter's own form is an If whose result has the type of one row, which fails where the
    result is written in place."""

    def written(writer: nodes.Writer, x: nodes.Value, index: nodes.Value, src: nodes.Value) -> nodes.Value:
        kind = _REDUCTIONS[reduce]
        return writer.node("ScatterElements", x, index, src, shape=writer.shape(x), axis=axis, reduction=kind)

    return lambda x, index, src: torch.scatter_reduce(x, axis, index, src, reduce), written


def _neutral(input: Tensor, reduce: str) -> Tensor:
    limits = torch.finfo(input.dtype) if input.is_floating_point() else torch.iinfo(input.dtype)
    return torch.full_like(input, {"amax": limits.min, "amin": limits.max, "prod": 1.0}.get(reduce, 0.0))


def _accumulated(x: Tensor, row: Tensor) -> tuple[Tensor, ...]:
    table = torch.zeros(4, 6)
    number = torch.index_add(x[0, 0], 0, row[:1] * 0, x[1, 1], alpha=-3)
    placed = table.index_put((row,), x[0]), table.index_put((row,), x, accumulate=True)
    grid = table.index_put((row[:, None] - 4, torch.arange(3)), table.new_ones(()), accumulate=True)
    masked = x.index_put((x > 0,), row[0].float(), accumulate=True)
    return table.index_add(0, row, x, alpha=2), *placed, number, grid, masked


@op(
    "index_add",
    "index_put",
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
    if "index_put" not in original.__name__:
        return _added(input, **given)
    if given.get("accumulate"):
        given["indices"] = [place for one in given["indices"] for place in _places_of(one)]
    return _placed(input, **given)


def _places_of(index: Any) -> tuple[Any, ...]:
    """Of a mask one index for each of its axes."""
    return index.nonzero().unbind(1) if index is not None and index.dtype == torch.bool else (index,)


def _added(input: Tensor, dim: int, index: Any, source: Tensor, alpha: Any = 1) -> Tensor:
    if not input.dim():
        return input + source * alpha  # of one number, and one index
    return input.scatter_add(dim, _spread(index, source, dim), source * alpha)


def _placed(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    whole = all(one is not None and one.dtype == torch.int64 for one in indices)
    if accumulate and whole and (len(indices) > 1 or indices[0].dim() != 1):
        # As rows of the tensor whose indexed axes are one.
        sizes, rest = input.shape[: len(indices)], input.shape[len(indices) :]
        places = torch.broadcast_tensors(*(torch.remainder(one, n) for one, n in zip(indices, sizes, strict=True)))
        flat = places[0]
        for place, size in zip(places[1:], sizes[1:], strict=True):
            flat = flat * size + place
        rows = values.expand([*flat.shape, *rest]).reshape(-1, *rest)
        return _placed(input.reshape(-1, *rest), [flat.reshape(-1)], rows, True).reshape(input.shape)
    one_row = len(indices) == 1 and indices[0].dim() == 1 and indices[0].dtype == torch.int64
    if not one_row or not (accumulate or values.dim() < input.dim()):
        return NotImplemented
    rows = values.expand([*indices[0].shape, *input.shape[1:]])
    if not accumulate:  # the exporter does not broadcast
        return torch.index_put(input, indices, rows)
    return input.scatter_add(0, _spread(indices[0], rows, 0), rows)


def _shortened(rows: Tensor, most: float, order: float) -> Tensor:
    return rows * (most / (rows.norm(order, -1, keepdim=True) + 1e-7)).clamp(max=1)


op(
    "nn.functional.embedding",
    name="embedding-of-bounded-norm",
    why="rows longer than max_norm are not shortened (relative error 2), or Unrecognized attribute: axes for ReduceL2",
    reason="ReduceL2|relative error",
    exporters=("trace",),
    tries=lambda b, n: (torch.randint(0, 6, (b, n)), torch.randn(6, 4)),
    case=lambda at, table: functional.embedding(at, table.clone(), None, 1.0, 1.5),
    unchanged=lambda at, table: functional.embedding(at, table),
    to=lambda original, input, weight, padding_idx=None, max_norm=None, norm_type=2.0, *rest, **others: (
        NotImplemented if max_norm is None else _shortened(original(input, weight), max_norm, norm_type)
    ),
)


@op(
    "nn.functional.embedding_bag",
    name="largest-of-bags",
    why="-inf where eager has 0: a bag without entries; refused with padding_idx or max_norm",
    reason="non-finite|padding_idx|max_norm|static shape",
    leaner=("dynamo",),
    tries=lambda n, b: (torch.randint(0, 6, (n + 3,)), torch.randn(6, 4), torch.arange(b) // 2),
    case=lambda at, table, starts: (
        functional.embedding_bag(at, table, starts, mode="max"),
        functional.embedding_bag(at, table, starts, mode="max", padding_idx=2, include_last_offset=True),
        functional.embedding_bag(at, table, starts, mode="mean", padding_idx=2),
        functional.embedding_bag(at, table.clone(), starts, 1.0, 1.5, mode="sum", per_sample_weights=table[at, 0]),
    ),
    unchanged=lambda at, table, starts: functional.embedding_bag(at, table, starts, mode="sum"),
    beside=("scatter-reduce",),
)
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    *,
    mode: str = "mean",
    include_last_offset: bool = False,
    padding_idx: int | None = None,
    per_sample_weights: Tensor | None = None,
    **unused: Any,  # how gradients are kept
) -> Tensor:
    """The largest of each bag, its sum or mean, 0 where it has no entry. What is padded is in a bag behind the last."""
    if offsets is None or (max_norm is None and mode != "max" and padding_idx is None):
        return NotImplemented
    starts = offsets[:-1] if include_last_offset else offsets
    bag = (torch.arange(input.shape[0])[:, None] >= starts).sum(1) - 1
    bag = bag if padding_idx is None else torch.where(input == padding_idx, starts.shape[0], bag)
    rows = weight[input] if max_norm is None else _shortened(weight[input], max_norm, norm_type)
    rows = rows if per_sample_weights is None else rows * per_sample_weights[:, None]
    start = weight.new_zeros((starts.shape[0] + 1, weight.shape[1]))
    reduction = {"max": "amax"}.get(mode, mode)
    return torch.scatter_reduce(start, 0, bag[:, None].expand_as(rows), rows, reduction, include_self=False)[:-1]


def _diagonals(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.diagonal_scatter(x[:, :, 0], 1, 1, 2), torch.diagonal_scatter(x[0, :, :-2], x[0, :, 0] * 2)


@op("diagonal_scatter", why=missing("aten::diagonal_scatter"), reason="diagonal_scatter|functional graph|copy_to",
    tries=lambda b, n: torch.randn(b, n, n + 2), case=_diagonals)  # fmt: skip
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """`input` with `src` on a diagonal."""
    rank = input.dim()
    axes, last_two = (dim1 % rank, dim2 % rank), (rank - 2, rank - 1)
    x = input.movedim(axes, last_two)
    columns = x.shape[-1]
    places = torch.arange(src.shape[-1], device=x.device) * (columns + 1)
    places = (places + (offset if offset >= 0 else columns * -offset)).expand(src.shape)
    return x.flatten(-2).scatter(-1, places, src.to(x.dtype)).reshape(x.shape).movedim(last_two, axes)


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
    places = _spread(index.to(torch.int64), source, dim)
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


_OF_ROWS = (
    "index_add", "index_copy", "index_fill", "index_select", "amax", "amin", "mean", "sum", "prod", "std", "var", "max",
    "min", "logsumexp", "all", "any", "argmax", "argmin", "cumsum", "cumprod", "softmax", "log_softmax", "sort",
    "argsort", "topk", "kthvalue", "median", "nansum", "nanmean", "cummax", "cummin", "logcumsumexp", "norm",
    "vector_norm", "masked_select", "squeeze", "quantile", "gather", "scatter", "scatter_add", "scatter_reduce", "flip",
    "transpose", "swapaxes", "nonzero", "repeat", "tile",
)  # fmt: skip


def _alone(x: Tensor) -> tuple[Tensor, ...]:
    one, at = x[0, 0], torch.zeros(1, dtype=torch.int64)
    written = one.index_add(0, at, one), one.index_copy(0, at, one * 2), one.index_fill(0, at, 3.0)
    some = one.mean(0, True), one.amax((-1,)), one.softmax(0) + one.cumsum(0), *one.sort(0), *one.topk(1), *one.max(0)
    moved = one.transpose(0, -1) + one.flip(()) + one.repeat(()), one.nonzero()
    placed = one.gather(0, at[0]) + one.scatter(0, at[0], one * 2)
    least = *one.median(0), torch.linalg.vector_norm(one, 0, 0)
    return *written, *some, *least, *moved, placed, one.index_select(0, at), one.masked_select(one > -99)


@op(
    *_OF_ROWS,
    name="index-of-one-number",
    why="data tensor must have rank >= 1; axis must be in [-rank, rank-1]; list index out of range: a tensor without "
    "axes, indexed, moved or reduced",
    reason="rank|axis|out of data bounds|Unsupported|not supported|index out of range|aten.median",
    beside=("order-statistics", "masked-select"),
    tries=numbers,
    case=_alone,
    unchanged=lambda x: x.index_select(0, torch.zeros(1, dtype=torch.int64)) + x[0, 0].max(x),
)
def of_one_number(original: Callable[..., Any], input: Tensor, *rest: Any, **more: Any) -> Any:
    """The same of an axis of one element."""
    named = original.__name__
    if not isinstance(input, Tensor) or input.dim() or not (rest or more or named in _WITHOUT_AXIS):
        return NotImplemented
    if named in _STAYS:
        times = named in ("repeat", "tile") and any((*rest, *more.values()))
        return NotImplemented if times else input.clone()
    tensors = any(isinstance(one, Tensor) for one in (*rest, *more.values()))
    # Not the larger of two tensors, nor several quantiles.
    if tensors and not named.startswith(("index", "masked", "gather", "scatter")):
        return NotImplemented
    if isinstance(more.get("value"), Tensor):  # a source without axes is taken for a number
        more["src"] = more.pop("value")
    found = original(input.reshape(1), *map(_row, rest), **{name: _row(one) for name, one in more.items()})
    return _of_one(found, named)


_WITHOUT_AXIS = ("sort", "argsort", "nonzero")
_STAYS = ("transpose", "swapaxes", "flip", "repeat", "tile")


def _of_one(found: Any, named: str) -> Any:
    """The result of one row as that of its one element."""
    if named == "nonzero":
        return found if isinstance(found, tuple) else found[:, :0]
    if isinstance(found, Tensor):
        return found if named == "masked_select" else found.reshape(())
    return type(found)([one.reshape(()) for one in found])


def _row(one: object) -> object:
    return one.reshape(-1) if isinstance(one, Tensor) else one


# ------------------------------------------------------------------ write into a part
@op("select_scatter", why=untraced("aten::select_scatter"), tries=matrices,
    case=lambda x: (torch.select_scatter(x, x[:, 0] * 2, 1, -1), x.select_scatter(x[0] + 1, 0, 0)))  # fmt: skip
def select_scatter(input: Tensor, src: Tensor, dim: int, index: Any) -> Tensor:
    """`input` with `src` at one place along the axis."""
    return slice_scatter(input, src.unsqueeze(dim % input.dim()), dim, index)


def _written(x: Tensor) -> tuple[Tensor, ...]:
    ends = x.slice_scatter(x[:, 1:3] * 2, 1, 1, 3), torch.slice_scatter(x, x[:, -2:] * 3, -1, -2)
    return *ends, torch.slice_scatter(x, x[:, ::2] - 1, -1, step=2)


@op("slice_scatter", why=untraced("aten::slice_scatter"), tries=lambda b, n: torch.randn(b, n + 3), case=_written)
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """`input` with `src` in a slice along the axis."""
    axis = dim % input.dim()
    lead = (slice(None),) * axis
    before = input[(*lead, slice(None, 0 if start is None else start))]
    start = before.shape[axis]
    if step == 1:
        after = input[(*lead, slice(start + src.shape[axis], None))]
        return torch.cat((before, src.to(input.dtype), after), axis)
    end = input[(*lead, slice(None, end))].shape[axis]
    places = torch.arange(input.shape[axis]).reshape([-1 if i == axis else 1 for i in range(input.dim())])
    apart = places - start
    inside = (apart >= 0) & (places < end) & (torch.remainder(apart, step) == 0)
    index = torch.div(apart, step, rounding_mode="floor")
    index = torch.where(inside, index, torch.zeros_like(index)).reshape(-1)
    return torch.where(inside, src.index_select(axis, index), input)
