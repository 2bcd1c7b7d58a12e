"""Slopes of sampled curves, and histograms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onnxpatch import missing, op


# ------------------------------------------------------------------ gradient
def _slopes(x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
    both = torch.gradient(x, spacing=0.5)
    return *both, *torch.gradient(x, spacing=(at,), dim=1), *torch.gradient(x, dim=(-1,), edge_order=2)


def _curves(b: int, n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(b + 2, n), torch.cumsum(torch.rand(n) + 0.1, 0)


@op("gradient", why=missing("aten::gradient", exporters=("trace",)), tries=_curves, case=_slopes)
def gradient(
    input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1
) -> tuple[Tensor, ...]:  # one for each axis
    """The slope at each point from its neighbours, along each axis."""
    spacing = 1 if spacing is None else spacing
    axes = range(input.dim()) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    axes = [axis % input.dim() for axis in axes]
    steps = list(spacing) if isinstance(spacing, list | tuple) else [spacing] * len(axes)
    return tuple(_slope(input, axis, step, edge_order) for axis, step in zip(axes, steps, strict=True))


def _slope(x: Tensor, axis: int, step: Any, order: int) -> Tensor:
    """step: between points, or where they are: a tensor of one axis."""
    size = x.shape[axis]

    def part(t: Tensor, start: Any, length: Any) -> Tensor:
        return t.narrow(axis, start, length)

    if isinstance(step, Tensor) and step.dim():
        place = step.view([-1 if a == axis else 1 for a in range(x.dim())])
        ahead = place.narrow(axis, 1, size - 1) - place.narrow(axis, 0, size - 1)
    else:
        ahead = torch.ones_like(x.narrow(axis, 1, size - 1)) * step
    rise = (x.narrow(axis, 1, size - 1) - x.narrow(axis, 0, size - 1)) / ahead
    before, after = part(ahead, 0, size - 2), part(ahead, 1, size - 2)
    inner = (part(rise, 0, size - 2) * after + part(rise, 1, size - 2) * before) / (before + after)
    first, last = part(rise, 0, 1), part(rise, size - 2, 1)
    if order == 2:
        # The parabola through three points.
        first = 2 * first - _beyond(part, rise, ahead, 0)
        last = 2 * last - _beyond(part, rise, ahead, size - 3)
    return torch.cat((first, inner, last), axis)


def _beyond(part: Callable[[Tensor, Any, Any], Tensor], rise: Tensor, ahead: Tensor, start: Any) -> Tensor:
    """The slope in the middle of three points, whose chord's is mirrored at an edge."""
    one, two = part(ahead, start, 1), part(ahead, start + 1, 1)
    return (part(rise, start, 1) * two + part(rise, start + 1, 1) * one) / (one + two)


# ------------------------------------------------------------------ histograms
class Histogram(NamedTuple):
    """What torch.histogram returns."""

    hist: Tensor
    bin_edges: Tensor


class Histograms(NamedTuple):
    """What torch.histogramdd returns."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


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
    if density:
        found = found / found.sum()
        for axis, edge in enumerate(edges):
            found = found / (edge[1:] - edge[:-1]).view([-1 if a == axis else 1 for a in _numbers(rows, edges)])
    return Histograms(found, tuple(edges)) if several else Histogram(found, edges[0])


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
