"""Orthogonal polynomials (Chebyshev, Hermite, Laguerre, Legendre) by the recurrence that each has, and sampled curves:
their slopes, and the areas under them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import missing, op, untraced, while_loop
from onnxpatch.formulas.elementary import floats
from onnxpatch.patching.proof import pairs

Next = Callable[[Any, Tensor, Tensor, Tensor], Tensor]
_MOST_TERMS = 16  # of a degree that is a number: unrolled up to it, a loop beyond
_LIMIT = {torch.float64: 512}  # the largest degree of a Hermite polynomial in eager; 128 in float32


def by_recurrence(
    x: Tensor, n: Tensor | int, first: Tensor, following: Next, dtype: torch.dtype, known: float
) -> Tensor:
    """P_n(x) from P_0 = 1, P_1 = `first` and P_(k+1) = following(k, x, P_k, P_(k-1)); 0 for a negative n.

    x, first: float64. n: of whole numbers, which broadcasts with x; or a number; NaN for one above `known`. dtype: of
    the result.
    """
    one = torch.ones_like(first)
    if isinstance(n, int) and n <= _MOST_TERMS:
        before, last = one, first
        for k in range(1, n):
            before, last = last, following(k, x, last, before)
        return (last if n > 0 else one if n == 0 else torch.zeros_like(one)).to(dtype)
    # Of an axis: the trace exporter makes a 0-d float64 plus a number float32.
    degree = torch.as_tensor(n).to(torch.float64)
    degree = degree if degree.dim() else degree.reshape(1)
    same = isinstance(n, int) or not n.dim()
    first = first if same else first + torch.zeros_like(degree)
    most = degree.reshape(-1).amax(0, keepdim=True)

    @while_loop(lambda k, last, before: (k < most).any())
    def run(k: Tensor, last: Tensor, before: Tensor) -> tuple[Tensor, ...]:
        found, before_it = following(k, x, last, before), last
        if not same:  # an element whose degree is reached stays as it is
            found, before_it = (torch.where(k < degree, *both) for both in ((found, last), (last, before)))
        return k + 1, found, before_it

    _, found, _ = run(torch.ones_like(most), first.clone(), torch.ones_like(first))
    other = torch.where(degree > known, math.nan, torch.where(degree < 0, 0.0, 1.0)).to(dtype)
    return torch.where((degree >= 1) & (degree <= known), found.to(dtype), other)


def _degrees(n: int) -> tuple[Tensor, Tensor]:
    """Numbers, inside and outside of [-1, 1], and a degree for each, a negative one among them."""
    return torch.linspace(-1.6, 1.7, n), torch.arange(n) % 7 - 1.0


def _row(name: str, first: Callable[[Tensor], Tensor], following: Next) -> None:
    shifted, bounded = name.startswith("special.shifted"), name.startswith("special.hermite")

    def computed(input: Any, n: Any) -> Tensor:
        dtype = floats(torch.ones((), dtype=torch.result_type(input, n))).dtype
        alone = not any(isinstance(one, Tensor) and one.dim() for one in (input, n))
        x = torch.as_tensor(input).to(torch.float64)
        x = x if x.dim() else x.reshape(1)  # the trace exporter makes a 0-d float64 beside a number float32
        x = 2 * x - 1 if shifted else x
        degree = n.to(torch.int64).to(torch.float64) if isinstance(n, Tensor) else int(n)
        known = _LIMIT.get(dtype, 128) if bounded else math.inf
        found = by_recurrence(x, degree, first(x), following, dtype, known)
        return found.reshape(()) if alone else found

    function = getattr(torch.special, name.removeprefix("special."))
    case = lambda x, n: (*(function(x, by) for by in (n, 4, 19, 0)), function(1.5, n), function(x[0], n[0]))  # noqa: E731
    op(name, why=missing(f"aten::{name.replace('.', '_')}"), tries=_degrees, sizes=(9, 14, 1), case=case, to=computed)


def _chebyshev(k: Any, x: Tensor, last: Tensor, before: Tensor) -> Tensor:
    return 2 * x * last - before


_row("special.chebyshev_polynomial_t", lambda x: x, _chebyshev)
_row("special.shifted_chebyshev_polynomial_t", lambda x: x, _chebyshev)
_row("special.chebyshev_polynomial_u", lambda x: 2 * x, _chebyshev)
_row("special.shifted_chebyshev_polynomial_u", lambda x: 2 * x, _chebyshev)
_row("special.chebyshev_polynomial_v", lambda x: 2 * x - 1, _chebyshev)
_row("special.shifted_chebyshev_polynomial_v", lambda x: 2 * x - 1, _chebyshev)
_row("special.chebyshev_polynomial_w", lambda x: 2 * x + 1, _chebyshev)
_row("special.shifted_chebyshev_polynomial_w", lambda x: 2 * x + 1, _chebyshev)
_row("special.hermite_polynomial_h", lambda x: 2 * x, lambda k, x, last, before: 2 * (x * last - k * before))
_row("special.hermite_polynomial_he", lambda x: x, lambda k, x, last, before: x * last - k * before)
_row(
    "special.laguerre_polynomial_l",
    lambda x: 1 - x,
    lambda k, x, last, before: ((2 * k + 1 - x) * last - k * before) / (k + 1),
)
_row(
    "special.legendre_polynomial_p",
    lambda x: x,
    lambda k, x, last, before: ((2 * k + 1) * x * last - k * before) / (k + 1),
)


# ------------------------------------------------------------------ gradient
def _slopes(x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
    both = torch.gradient(x, spacing=0.5)
    return *both, *torch.gradient(x, spacing=(at,), dim=1), *torch.gradient(x, dim=(-1,), edge_order=2)


@op(
    "gradient",
    why="aten::gradient is not supported by trace; under dynamo the size is the example's",
    reason="gradient|static shape|Constraints violated",
    tries=lambda b, n: (torch.randn(b + 2, n), torch.cumsum(torch.rand(n) + 0.1, 0)),
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
