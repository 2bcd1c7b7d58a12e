"""Sorting, searching, order statistics and membership."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onnxpatch import exporting, missing, op, running_model
from onnxpatch.formulas import order_statistics
from onnxpatch.formulas.scans import cummax
from onnxpatch.formulas.searching import contained, search
from onnxpatch.formulas.symbolic import counted
from onnxpatch.formulas.tracing import traced_from, tracing_paused


class Found(NamedTuple):
    """torch's result of a search along an axis: values and their indices."""

    values: Tensor
    indices: Tensor


def _sorted(x: Tensor) -> tuple[Tensor, ...]:
    values, order = torch.sort(x, dim=1, stable=True)
    again = torch.sort(x.abs(), dim=1, stable=False).values
    return values, torch.argsort(x[..., 0], dim=-1, descending=True, stable=True) + order[..., 0], again


@op(
    "sort",
    "argsort",
    name="stable-sort",
    why="ONNX export of operator Sort, Out parameter is not supported; No ONNX function found for aten.sort.stable",
    reason="aten.sort|operator Sort",
    link="https://github.com/pytorch/pytorch/issues/108520",
    # Rounded, so that there are equal entries, whose order a stable sort keeps.
    tries=lambda b, n: torch.randn(b, n, 3).round(),
    case=_sorted,
)
def sort(
    original: Callable[..., Tensor], input: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> object:
    """sort(stable=True) as TopK over all entries. ONNX's TopK keeps the order of equal entries; torch.topk does not.

    stable=False is left out: torch's default, which exporters know.
    """
    if not stable:
        return NotImplemented if stable is None else original(input, dim, descending)
    found = input.topk(input.shape[dim], dim=dim, largest=descending, sorted=True)
    return found[1] if "argsort" in original.__name__ else Found(*found)


class _Search(torch.nn.Module):
    bins: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bins", torch.linspace(-2, 2, 9))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        own = torch.searchsorted(x.sort(-1).values, x.round(), right=True)
        return torch.searchsorted(self.bins, x.round()), own, torch.bucketize(x.round(), self.bins, right=True)


@op(
    "searchsorted",
    "bucketize",
    why="Exporting the operator 'aten::searchsorted' to ONNX is not supported; nor aten.bucketize",
    reason="aten.searchsorted|aten::searchsorted",
    link="https://github.com/pytorch/pytorch/issues/79503",
    tries=lambda b, n: torch.randn(b, n, 3),
    case=_Search,
)
def searchsorted(
    sorted_sequence: object = None,
    input: object = None,
    *,
    boundaries: Any = None,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Counts the boundaries before each value, by a search tree."""
    if boundaries is None:
        boundaries, values = sorted_sequence, input
    else:  # bucketize: the values are the first argument
        values = sorted_sequence
    # torch.searchsorted takes a Python number, too.
    values = torch.as_tensor(values, device=boundaries.device)
    if sorter is not None:
        # The order in which the table is sorted is given apart from it.
        boundaries = boundaries.gather(-1, sorter)
    right = right or side == "right"
    found = search(boundaries, values, right=right, length=_stored_length(boundaries))
    return found.to(torch.int32) if out_int32 else found


def _stored_length(boundaries: Tensor) -> int | None:
    """The length of boundaries that are a parameter or buffer; None for others. Under trace sizes are tensors."""
    running = running_model() if exporting() == "trace" else None
    if running is None or not traced_from(boundaries, running.tensors.values()):
        return None
    with tracing_paused():
        return int(boundaries.shape[-1])


@op(
    "median",
    "kthvalue",
    "quantile",
    name="order-statistics",
    why="Exporting the operator 'aten::median' / 'aten::kthvalue' / 'aten::quantile' to ONNX is not supported",
    reason="aten.median|aten::median",
    link="https://github.com/pytorch/pytorch/issues/121627",
    tries=lambda b, n: torch.randn(b, n, 3),
    sizes=((2, 5), (3, 8), (1, 4)),
    case=lambda x: (x.median(dim=1).values, x.median(), x.kthvalue(2, dim=1).values, torch.quantile(x, 0.3, dim=1)),
)
def order_statistic(original: Callable[..., Tensor], input: Tensor, **given: object) -> object:
    """Computes median, kthvalue or quantile from the smallest entries of the axis."""
    forms: dict[str, Callable[..., Any]] = {"median": median, "kthvalue": kthvalue, "quantile": quantile}
    return forms[original.__name__](input, **given)


def _ascending(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return x.topk(x.shape[dim], dim=dim, largest=False, sorted=True)


def median(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """torch.median: the lower of the two middle entries."""
    if dim is None:
        return median(x.flatten(), 0).values
    return Found(*order_statistics.median(x, dim, keepdim))


def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Found:
    """torch.kthvalue: the k-th smallest entry and its index."""
    return Found(*order_statistics.kthvalue(x, k, dim, keepdim))


def quantile(
    x: Tensor, q: object, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """torch.quantile: interpolated between the two entries around q (n - 1). Several q become the first axis."""
    if dim is None:
        flat = quantile(x.flatten(), q, 0, interpolation=interpolation)
        return flat.reshape([*flat.shape, *([1] * x.dim())]) if keepdim else flat
    share = torch.as_tensor(q, dtype=x.dtype, device=x.device)
    place = share.reshape(-1) * (counted(x.shape[dim], x) - 1).to(x.dtype)
    low, high = place.floor(), place.ceil()
    ordered = _ascending(x, dim)[0]
    below, above = (ordered.index_select(dim, edge.to(torch.int64)) for edge in (low, high))
    steps = [-1 if axis == dim % x.dim() else 1 for axis in range(x.dim())]
    weight = _weights(interpolation, place, low).view(steps)
    mixed = (below + (above - below) * weight).movedim(dim, 0)
    mixed = mixed.unsqueeze(dim % x.dim() + 1) if keepdim else mixed
    return mixed if share.dim() else mixed.squeeze(0)


def _weights(interpolation: str, place: Tensor, low: Tensor) -> Tensor:
    # Functions, so that the nodes of one form only are recorded.
    return {
        "linear": lambda: place - low,
        "lower": lambda: torch.zeros_like(place),
        "higher": lambda: torch.ones_like(place),
        "midpoint": lambda: torch.full_like(place, 0.5),
        "nearest": lambda: torch.round(place) - low,
    }[interpolation]()


def _with_holes(b: int, n: int) -> Tensor:
    """Numbers with a NaN in most rows, one row of nothing else."""
    x = torch.randn(b, n, 3)
    return torch.where((torch.arange(n)[:, None] % 4 == torch.arange(3)) | (x > 2.5), torch.nan, x)


def _known(x: Tensor) -> tuple[Tensor, ...]:
    of_rows = torch.nanquantile(x, 0.3, 1), x.nanquantile(torch.tensor([0.2, 0.9]), 1, keepdim=True)
    return (*x.nanmedian(1), torch.nanmedian(x), *of_rows, torch.nanquantile(x, 0.5, interpolation="nearest"))


@op(
    "nanmedian",
    why=missing("aten::nanmedian", "aten::nanquantile"),
    tries=_with_holes,
    case=_known,
    beside=("nanquantile",),
)
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower of the two middle entries of those that are not NaN."""
    if dim is None:
        return nanmedian(input.flatten(), 0).values
    if not input.is_floating_point():
        return median(input, dim, keepdim)
    values, places = _ascending(torch.where(torch.isnan(input), torch.inf, input), dim)
    count = (~torch.isnan(input)).to(torch.int64).sum(dim, keepdim=True)
    middle = torch.div((count - 1).clamp(min=0), 2, rounding_mode="floor")
    found = torch.where(count > 0, values.gather(dim, middle), torch.nan), places.gather(dim, middle)
    return Found(*(found if keepdim else (part.squeeze(dim) for part in found)))


@op(
    "nanquantile",
    why=missing("aten::nanquantile"),
    reason="nanquantile|nanmedian|non-finite values differ",
    tries=_with_holes,
    case=_known,
    beside=("nanmedian",),
)
def nanquantile(
    input: Tensor, q: object, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The quantile of the entries that are not NaN. Several q become the first axis."""
    if dim is None:
        flat = nanquantile(input.flatten(), q, 0, interpolation=interpolation)
        return flat.reshape([*flat.shape, *([1] * input.dim())]) if keepdim else flat
    share = torch.as_tensor(q, dtype=input.dtype, device=input.device)
    known = ~torch.isnan(input)
    count = known.to(input.dtype).sum(dim, keepdim=True)
    steps = [-1 if axis == dim % input.dim() else 1 for axis in range(input.dim())]
    place = share.reshape(-1).view(steps) * (count - 1).clamp(min=0)
    low, high = place.floor(), place.ceil()
    ordered = _ascending(torch.where(known, input, torch.inf), dim)[0]
    below, above = (ordered.gather(dim, edge.to(torch.int64)) for edge in (low, high))
    mixed = below + (above - below) * _weights(interpolation, place, low)
    mixed = torch.where(count > 0, mixed, torch.nan).movedim(dim % input.dim(), 0)
    mixed = mixed.unsqueeze(dim % input.dim() + 1) if keepdim else mixed
    return mixed if share.dim() else mixed.squeeze(0)


@op("mode", why=missing("aten::mode"), tries=lambda b, n: torch.randint(0, 4, (b, n + 4, 2)) * 1.0,
    case=lambda x: (torch.mode(x, 1).values, *x.mode(1, keepdim=True)))  # fmt: skip
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Found:
    """The smallest of the most frequent entries, and its last place."""
    if not input.dim():
        return Found(input.clone(), torch.zeros_like(input, dtype=torch.int64))
    axis = dim % input.dim()
    values, places = _ascending(input, axis)
    rest = values.shape[axis] - 1
    ticks = torch.ones_like(places).cumsum(axis) - 1
    changed = values.narrow(axis, 1, rest) != values.narrow(axis, 0, rest)
    starts = torch.where(changed, ticks.narrow(axis, 1, rest), torch.zeros_like(places.narrow(axis, 1, rest)))
    starts = cummax(torch.cat((torch.zeros_like(places.narrow(axis, 0, 1)), starts), axis), axis)[0]
    # ArgMax takes the first of equal runs: that of the smallest number.
    found = (ticks - starts).argmax(axis, keepdim=True)
    results = values.gather(axis, found), places.gather(axis, found)
    return Found(*(results if keepdim else (part.squeeze(axis) for part in results)))


@op(
    "isin",
    name="membership",
    why=missing("aten::isin"),
    reason="aten.searchsorted|aten.isin|aten::isin",
    tries=lambda n, m: (torch.randint(9, (n, 3)), torch.randint(9, (m,))),
    sizes=((4, 3), (7, 5), (1, 1)),
    case=lambda x, members: (torch.isin(x, members), torch.isin(x, torch.tensor([1, 7]), invert=True)),
)
def isin(elements: object, test_elements: object, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Takes O((values + members) log(members)); torch.isin exported plainly takes their product."""
    return contained(elements, test_elements, invert=invert)
