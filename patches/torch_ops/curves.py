"""Slopes of sampled curves and the areas under them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op, untraced
from onnxpatch.formulas.proof_cases import pairs


# ------------------------------------------------------------------ gradient
def _slopes(x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
    both = torch.gradient(x, spacing=0.5)
    return *both, *torch.gradient(x, spacing=(at,), dim=1), *torch.gradient(x, dim=(-1,), edge_order=2)


def _curves(b: int, n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(b + 2, n), torch.cumsum(torch.rand(n) + 0.1, 0)


@op(
    "gradient",
    why="aten::gradient is not supported by trace; under dynamo the size is the example's",
    reason="gradient|static shape|Constraints violated",
    tries=_curves,
    case=_slopes,
)
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

    places = isinstance(step, Tensor) and step.dim()
    if places:
        place = step.view([-1 if a == axis else 1 for a in range(x.dim())])
        ahead = place.narrow(axis, 1, size - 1) - place.narrow(axis, 0, size - 1)
    else:
        ahead = torch.ones_like(x.narrow(axis, 1, size - 1)) * step
    rise = (x.narrow(axis, 1, size - 1) - x.narrow(axis, 0, size - 1)) / ahead
    before, after = part(ahead, 0, size - 2), part(ahead, 1, size - 2)
    if places:
        inner = (part(rise, 0, size - 2) * after + part(rise, 1, size - 2) * before) / (before + after)
    else:  # without the point itself, which may be a NaN
        inner = (part(x, 2, size - 2) - part(x, 0, size - 2)) / (2 * step)
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


@op(
    "cumulative_trapezoid",
    why=untraced("aten::cumulative_trapezoid"),
    tries=pairs,
    case=lambda y, x: torch.cat((torch.cumulative_trapezoid(y, x), torch.cumulative_trapezoid(y, dx=0.5, dim=-1))),
    sizes=((2, 5), (3, 9), (1, 4)),
)
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1, dim: int = -1) -> Tensor:
    """The areas under a line through the points, up to each."""
    heights = _of_neighbours(y, dim, torch.add) / 2
    return torch.cumsum(heights * (dx if x is None else _of_neighbours(x, -1 if x.dim() == 1 else dim, torch.sub)), dim)


def _of_neighbours(x: Tensor, dim: int, function: Callable[..., Tensor]) -> Tensor:
    rest = x.shape[dim] - 1
    return function(x.narrow(dim, 1, rest), x.narrow(dim, 0, rest))
