"""Counts: of whole numbers, and of numbers between edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from onnxpatch import exporting, missing, op

_RESULTS: Any = torch.return_types  # torch's stubs lack most of them


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
    count: Any = torch.clamp(longest, min=minlength)
    if exporting() == "dynamo":
        count = count.item()
        # A number out of data may be a size only once it is known not to be negative.
        torch._check(count >= 0)
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
