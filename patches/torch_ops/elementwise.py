"""Functions of each element: lgamma, atan2, fmax and fmin."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import missing, op

# Lanczos approximation with g = 7 and nine terms: 15 digits.
_G = 7.0
_TERMS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip


@op(
    "lgamma",
    "special.gammaln",
    why=missing("aten::lgamma"),
    # On both sides of the poles at 0, -1, ..., and through the roots at 1 and 2.
    tries=lambda n: torch.linspace(-4.7, 5.2, n)[:, None] + torch.rand(n, 2) * 0.1,
    sizes=(9, 40, 1),
    case=lambda x: (torch.lgamma(x), torch.special.gammaln(x.abs() * 20 + 1e-3), x.lgamma()),
)
def lgamma(input: Tensor) -> Tensor:
    """log |gamma(x)| by a series of nine terms, in float64, since large terms cancel near its roots at 1 and 2."""
    wide = input.to(torch.float64)
    # The series holds to the right of 0.5; to the left the reflection below takes over.
    above = torch.where(wide < 0.5, 1 - wide, wide) - 1
    series = torch.full_like(above, _TERMS[0])
    for number, term in enumerate(_TERMS[1:], start=1):
        series = series + term / (above + number)
    t = above + _G + 0.5
    found = 0.5 * math.log(2 * math.pi) + (above + 0.5) * torch.log(t) - t + torch.log(series)
    # gamma(x) gamma(1 - x) = pi / sin(pi x). The sine is that of the distance to the nearest integer, which is exact.
    part = wide - torch.floor(wide)
    mirrored = math.log(math.pi) - torch.log(torch.sin(math.pi * part).abs()) - found
    found = torch.where(wide < 0.5, mirrored, found)
    # The poles at 0, -1, -2, ...
    found = torch.where((wide <= 0) & (part == 0), torch.full_like(wide, math.inf), found)
    found = torch.where(wide.abs() == math.inf, torch.full_like(wide, math.inf), found)
    return found.to(input.dtype if input.is_floating_point() else torch.float32)


def _grid(batch: int, count: int) -> tuple[Tensor, ...]:
    """Every pair of a few numbers, 0 and a negative 0 among them."""
    numbers = torch.tensor([0.0, 1.0, -1.0, -0.0, 2.5, -0.3])[:count]
    return tuple(one.expand(batch, -1, -1).clone() for one in torch.meshgrid(numbers, numbers, indexing="ij"))


@op(
    "atan2",
    "arctan2",
    name="atan2-origin",
    why="non-finite values differ: atan2(0, 0) is NaN in the graph, and atan2(0, -1) has the wrong sign",
    reason="non-finite values differ|relative error",
    link="https://github.com/pytorch/pytorch/issues/51334",
    tries=_grid,
    sizes=((2, 6), (1, 3), (3, 5)),
    case=lambda y, x: torch.atan2(y, x),
    unchanged=lambda y, x: torch.atan(y) + x,
)
def atan2(input: Tensor, other: Tensor) -> Tensor:
    """The angle of (other, input), in radians from -pi to pi."""
    if not input.is_floating_point() or not other.is_floating_point():
        return NotImplemented
    # The only place where the quotient says nothing: 0 / 0 is NaN.
    origin = (input == 0) & (other == 0)
    # A quotient by 0 has the sign of the number divided, by a negative 0, too; in the origin it is 0.
    angle = torch.atan(input / torch.where(other == 0, (input == 0).to(other.dtype), other))
    below = (input < 0) | (torch.reciprocal(input) < 0)  # so is a negative zero
    turned = torch.where(below, angle - math.pi, angle + math.pi)
    left = (other < 0) | (origin & (torch.reciprocal(other) < 0))
    # Left of the y axis the arctangent of the quotient is off by half a turn.
    return torch.where(left, turned, angle)


def _extremes(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    holes = torch.where(x > 0.5, torch.nan, x)
    return torch.fmax(holes, y), holes.fmin(y[:, :1]), torch.fmax(x.long(), y.long())


@op(
    "fmax",
    "fmin",
    name="extremes-beside-nan",
    why="No ONNX function found for <OpOverload(op='prims.fmax', overload='default')>; Exporting the operator "
    "'aten::fmax' to ONNX opset version 18 is not supported",
    reason="fmax|fmin",
    link="https://github.com/pytorch/pytorch/issues/126972",
    tries=lambda b, n: (torch.randn(b, n), torch.randn(b, n)),
    case=_extremes,
    unchanged=lambda x, y: torch.maximum(x, y),
)
def extreme(original: Callable[..., Tensor], input: Tensor, other: Tensor) -> Tensor:
    """The one that is a number, else the larger or smaller one."""
    chosen = torch.maximum(input, other) if original.__name__ == "fmax" else torch.minimum(input, other)
    if not chosen.is_floating_point():
        return chosen
    return torch.where(torch.isnan(input), other, torch.where(torch.isnan(other), input, chosen))
