"""Medians, quantiles, k-th entries and modes, also beside NaN; counts of numbers, whole or between edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from onnxpatch import missing, op
from onnxpatch.formulas.scans import cummax
from onnxpatch.formulas.symbolic import counted, places_along, size_of_data

_RESULTS: Any = torch.return_types  # torch's stubs lack most of them


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
    """torch.median: the lower of the two middle entries and its index; NaN if an entry is NaN."""
    if dim is None:
        return median(x.flatten(), 0).values
    # Where TopK puts a NaN does not matter: it is the answer.
    values, places = _largest_of_smallest(x, (x.shape[dim] + 1) // 2, dim)
    if x.is_floating_point():
        # torch gives the index of the first NaN. ONNX's ArgMax has no form for bools.
        first = torch.isnan(x).to(torch.int32).argmax(dim, keepdim=True)
        spoilt = torch.isnan(x.gather(dim, first))
        values, places = torch.where(spoilt, torch.nan, values), torch.where(spoilt, first, places)
    return _RESULTS.median(_squeezed(dim, keepdim, values, places))


def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """torch.kthvalue: the k-th smallest entry and its index."""
    return _RESULTS.kthvalue(_squeezed(dim, keepdim, *_largest_of_smallest(_ordered(x), k, dim)))


def _squeezed(dim: int, keepdim: bool, *parts: Tensor) -> list[Tensor]:
    return [part if keepdim else part.squeeze(dim) for part in parts]


def _ordered(x: Tensor) -> Tensor:
    """`x` with inf in place of NaN: torch sorts NaN last, TopK does not."""
    return torch.where(x == x, x, torch.inf) if x.is_floating_point() else x


def _largest_of_smallest(x: Tensor, count: Any, dim: int) -> tuple[Tensor, Tensor]:
    """By TopK with the smallest sufficient k, which is faster than a sort."""
    # Unsorted: only the largest of them, the k-th, is asked for.
    values, places = x.topk(count, dim=dim, largest=False, sorted=False)
    found = values.argmax(dim, keepdim=True)
    return values.gather(dim, found), places.gather(dim, found)


def quantile(
    x: Tensor, q: object, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear",
    known: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """torch.quantile: interpolated between the two entries around q (n - 1). Several q become the first axis.

    known: which entries count.
    """
    if dim is None or not x.dim():
        parts = known if known is None else known.flatten()
        flat = quantile(x.flatten(), q, 0, interpolation=interpolation, known=parts)
        return flat.reshape([*flat.shape, *([1] * x.dim())]) if keepdim else flat
    share = torch.as_tensor(q, dtype=x.dtype, device=x.device)
    steps = [-1 if axis == dim % x.dim() else 1 for axis in range(x.dim())]
    if known is None:
        place, ordered = share.reshape(-1) * (counted(x.shape[dim], x) - 1).to(x.dtype), _ascending(x, dim)[0]
        entries = lambda at: ordered.index_select(dim, at.reshape(-1).to(torch.int64))  # noqa: E731
        mixed = _between(entries, place.view(steps), interpolation)
    else:
        count, ordered = known.to(x.dtype).sum(dim, keepdim=True), _ascending(torch.where(known, x, torch.inf), dim)[0]
        place = share.reshape(-1).view(steps) * (count - 1).clamp(min=0)
        mixed = _between(lambda at: ordered.gather(dim, at.to(torch.int64)), place, interpolation)
        mixed = torch.where(count > 0, mixed, torch.nan)
    mixed = mixed.movedim(dim, 0)
    mixed = mixed.unsqueeze(dim % x.dim() + 1) if keepdim else mixed
    return mixed if share.dim() else mixed.squeeze(0)


def _between(entries: Callable[[Tensor], Tensor], place: Tensor, interpolation: str) -> Tensor:
    """What is at a fraction of two places. entries: the sorted numbers at whole ones."""
    rounded = {"lower": torch.floor, "higher": torch.ceil, "nearest": torch.round}.get(interpolation)
    if rounded:
        return entries(rounded(place))
    low = place.floor()
    below, above = entries(low), entries(place.ceil())
    weight = place - low if interpolation == "linear" else torch.full_like(place, 0.5)
    # As torch.lerp, from the nearer one: beside an infinity the two forms differ.
    apart = above - below
    return torch.where(weight < 0.5, below + apart * weight, above - apart * (1 - weight))


def _with_holes(b: int, n: int) -> Tensor:
    """Numbers with a NaN in most rows, one row of nothing else."""
    x = torch.randn(b, n, 3)
    return torch.where((torch.arange(n)[:, None] % 4 == torch.arange(3)) | (x > 2.5), torch.nan, x)


def _known(x: Tensor) -> tuple[Tensor, ...]:
    of_rows = torch.nanquantile(x, 0.3, 1), x.nanquantile(torch.tensor([0.2, 0.9]), 1, keepdim=True)
    middle, place = x.nanmedian(1)
    # What is at the place: which of equal numbers is named is not defined.
    return (
        middle,
        x.gather(1, place.unsqueeze(1)),
        torch.nanmedian(x),
        *torch.nanmedian(x[0, 0, 1], 0),
        torch.nanquantile(x[0, 0, 1], 0.5, 0),
        torch.nanmedian(x.half(), 1).values,
        *of_rows,
        torch.nanquantile(x, 0.5, interpolation="nearest"),
    )


@op(
    "nanmedian",
    why=missing("aten::nanmedian", "aten::nanquantile"),
    tries=_with_holes,
    case=_known,
    beside=("nanquantile",),
)
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower of the two middle entries of those that are not NaN."""
    if dim is None or not input.dim():
        found = nanmedian(input.flatten(), 0)
        return found.values if dim is None else found
    if not input.is_floating_point():
        return median(input, dim, keepdim)
    # Half of the NaN count as the least of all numbers, the others as the largest: the median is that of all.
    unknown = torch.isnan(input)
    number, size = unknown.to(torch.int32).cumsum(dim), counted(input.shape[dim], input)
    least = number <= (number.amax(dim, keepdim=True) + size % 2) // 2
    filled = torch.where(unknown, torch.where(least, -torch.inf, torch.inf).to(input.dtype), input)
    found, _ = _largest_of_smallest(filled, (input.shape[dim] + 1) // 2, dim)
    found = torch.where(unknown.all(dim, keepdim=True), torch.nan, found)
    # Looked for once more: the infinities that stand for NaN are sorted among the others.
    place = (input == found).to(torch.int32).argmax(dim, keepdim=True)
    return _RESULTS.nanmedian(_squeezed(dim, keepdim, found, place))


@op(
    "nanquantile",
    why=missing("aten::nanquantile"),
    reason="nanquantile|nanmedian|non-finite values differ",
    tries=_with_holes,
    case=_known,
    beside=("nanmedian",),
)
def nanquantile(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The quantile of the entries that are not NaN. Several q become the first axis."""
    return quantile(input, *args, known=~torch.isnan(input), **kwargs)


@op("mode", why=missing("aten::mode"), tries=lambda b, n: torch.randint(0, 4, (b, n + 4, 2)) * 1.0,
    case=lambda x: (torch.mode(x, 1).values, *x.mode(1, keepdim=True)))  # fmt: skip
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The smallest of the most frequent entries, and its last place."""
    if not input.dim():
        return _RESULTS.mode((input.clone(), torch.zeros_like(input, dtype=torch.int64)))
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
    return _RESULTS.mode(_squeezed(axis, keepdim, *results))


@op(
    "bincount",
    why=missing("aten::bincount"),
    # In the last there are more bins by minlength than by the numbers.
    tries=lambda n, most: (torch.arange(n) * 3 % most, torch.randn(n)),
    sizes=((8, 7), (11, 19), (1, 2)),
    case=lambda x, weights: (torch.bincount(x, minlength=4), x.bincount(weights), torch.bincount(x)),
)
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Counts 0 ... max(input). Under dynamo the number of bins is a size that depends on data."""
    places = input.to(torch.int64)
    # One more entry, so that an empty input has a maximum.
    longest = torch.cat((places, places.new_full((1,), -1))).amax(0) + 1
    along = places_along(input)
    # Where every place has its bin, a number that Python may loop over.
    few = isinstance(along, int) and along <= minlength
    count = minlength if few else size_of_data(torch.clamp(longest, min=minlength))
    # In eager, weights of any dtype but float32 are summed in float64, and so is what comes out.
    wide = weights is None or weights.dtype == torch.float32
    ones = torch.ones_like(places) if weights is None else weights if wide else weights.double()
    return torch.zeros([count], dtype=ones.dtype, device=ones.device).scatter_add(0, places, ones)


@op(
    "histc",
    why=missing("aten::histc"),
    tries=lambda n: torch.randn(n),
    sizes=(30, 90, 3),
    case=lambda x: (torch.histc(x, bins=5, min=-1.0, max=1.5), x.histc(7)),
)
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Counts elements in bins by torch's formula. Without limits, bins go from the smallest to the largest element."""
    if input.dtype not in (torch.float32, torch.float64):
        return NotImplemented  # eager finds the bins in half precision, with roundings of its own
    x = input.flatten()
    # torch means by 0 and 0 that no limits are given.
    free = min == 0 and max == 0
    low, high = (x.amin(0), x.amax(0)) if free else (torch.full_like(x[:1], min), torch.full_like(x[:1], max))
    equal = high == low
    # All elements equal, or limits: torch widens the range by 1 on both sides.
    low, high = torch.where(equal, low - 1, low), torch.where(equal, high + 1, high)
    inside = (x >= low) & (x <= high)
    # One more bin takes elements outside the limits. The upper limit belongs to the last bin.
    places = ((x - low) * bins / (high - low)).to(torch.int64).clamp(0, bins - 1)
    return torch.zeros_like(x[:1]).expand([bins]).clone().scatter_add(0, places, inside.to(x.dtype))


# ------------------------------------------------------------------ histograms
def _counts(x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    flat, edges = x.reshape(-1), torch.tensor([-1.0, -0.2, 0.0, 1.5])
    one = torch.histogram(flat, 5), torch.histogram(flat, edges, weight=weight.reshape(-1), density=True)
    found, sides = torch.histogramdd(x[:, :2], bins=[3, 4], range=[-1.0, 1.0, -2.0, 0.5])
    return *one[0], *one[1], found, *sides, torch.histogramdd(x[:, :2], bins=2).hist


@op("histogram", "histogramdd", name="histograms", why=missing("aten::histogram", "aten::histogramdd"), case=_counts,
    tries=lambda b, n: (torch.randn(b + 3, n), torch.rand(b + 3, n)), beside=("searchsorted",))  # fmt: skip
def histogram(
    original: Callable[..., Any], input: Tensor, bins: Any, *, range: Sequence[float] | None = None,
    weight: Tensor | None = None, density: bool = False,
) -> Any:  # fmt: skip
    """How many elements, or what weights, fall between edges; histogramdd counts rows by each of their columns."""
    several = "histogramdd" in original.__name__
    rows = input.reshape(-1, input.shape[-1]) if several else input.reshape(-1, 1)
    columns = list(rows.unbind(1)) if not several else [rows[:, i] for i in _numbers(rows, bins)]
    each = list(bins) if isinstance(bins, list | tuple) else [bins] * len(columns)
    ends = [None] * len(columns) if range is None else [range[2 * i : 2 * i + 2] for i in _numbers(rows, columns)]
    edges = [_edges(x, one, end) for x, one, end in zip(columns, each, ends, strict=True)]
    place, inside, total = torch.zeros_like(columns[0], dtype=torch.int64), columns[0] == columns[0], 1
    for x, edge in zip(columns, edges, strict=True):
        count = edge.shape[0] - 1
        # The last edge belongs to the last bin.
        at = torch.searchsorted(edge, x, right=True) - 1 - (x == edge[-1]).to(torch.int64)
        inside = inside & (x >= edge[0]) & (x <= edge[-1])
        place, total = place * count + at, total * count
    share = inside.to(input.dtype) if weight is None else torch.where(inside, weight.reshape(-1), 0.0)
    place = torch.where(inside, place, torch.zeros_like(place))
    found = input.new_zeros([total]).scatter_add(0, place, share)
    found = found.reshape([edge.shape[0] - 1 for edge in edges])
    found = _density(found, edges) if density else found
    return _RESULTS.histogramdd((found, tuple(edges))) if several else _RESULTS.histogram((found, edges[0]))


def _density(counts: Tensor, edges: list[Tensor]) -> Tensor:
    """The shares of all, by the width of their bins."""
    found = counts / counts.sum()
    for axis, edge in enumerate(edges):
        found = found / (edge[1:] - edge[:-1]).view([-1 if a == axis else 1 for a in range(len(edges))])
    return found


def _numbers(rows: Tensor, bins: Any) -> Sequence[int]:
    """0, 1, ... for each of them; of one number for all, for each column."""
    return [*range(len(bins) if isinstance(bins, list | tuple) else int(rows.shape[1]))]


def _edges(x: Tensor, bins: Any, ends: Any) -> Tensor:
    if isinstance(bins, Tensor):
        return bins
    low, high = (x.amin(0), x.amax(0)) if ends is None else (x.new_full((), end) for end in ends)
    equal = low == high
    low, high = torch.where(equal, low - 0.5, low), torch.where(equal, high + 0.5, high)
    steps = torch.arange(bins + 1, device=x.device)
    # As eager does, from both ends, so that the last edge is the highest number itself.
    step = (high - low) / bins
    return torch.where(steps < (bins + 1) // 2, low + step * steps, high - step * (bins - steps))
