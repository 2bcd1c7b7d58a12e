"""Orthogonal polynomials (Chebyshev, Hermite, Laguerre, Legendre) by the recurrence that each has."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import missing, op, while_loop
from onnxpatch.formulas.elementary import floats

Next = Callable[[Any, Tensor, Tensor, Tensor], Tensor]
_MOST_TERMS = 16  # of a degree that is a number: unrolled up to it, a loop beyond
_LIMIT = {torch.float64: 512}  # the largest degree of a Hermite polynomial in eager; 128 in float32


def polynomial(x: Tensor, n: Tensor | int, first: Tensor, following: Next) -> Tensor:
    """P_n(x) from P_0 = 1, P_1 = `first` and P_(k+1) = following(k, x, P_k, P_(k-1)); 0 for a negative n.

    x, first: float64. n: of whole numbers, which broadcasts with x; or a number.
    """
    one = torch.ones_like(first)
    if isinstance(n, int) and n <= _MOST_TERMS:
        before, last = one, first
        for k in range(1, n):
            before, last = last, following(k, x, last, before)
        return last if n > 0 else one if n == 0 else torch.zeros_like(one)
    whole = torch.broadcast_tensors(x, first, one, torch.as_tensor(n).to(torch.float64))
    # Of one axis: the trace exporter makes a 0-d float64 plus a number float32.
    x, first, one, degree = (part.reshape(-1) for part in whole)

    bound = degree + 0  # under dynamo no tensor may come into a loop twice

    @while_loop(lambda k, last, before: (k < bound).any())
    def run(k: Tensor, last: Tensor, before: Tensor) -> tuple[Tensor, ...]:
        # An element whose degree is reached stays as it is.
        more = k < degree
        return k + 1, torch.where(more, following(k, x, last, before), last), torch.where(more, last, before)

    _, found, _ = run(one.clone(), first.clone(), one.clone())
    found = torch.where(degree >= 1, found, one)
    return torch.where(degree < 0, torch.zeros_like(one), found).reshape(whole[0].shape)


def _degrees(n: int) -> tuple[Tensor, Tensor]:
    """Numbers, inside and outside of [-1, 1], and a degree for each, a negative one among them."""
    return torch.linspace(-1.6, 1.7, n), torch.arange(n) % 7 - 1.0


def _row(name: str, first: Callable[[Tensor], Tensor], following: Next) -> None:
    shifted, bounded = name.startswith("special.shifted"), name.startswith("special.hermite")

    def computed(input: Any, n: Any) -> Tensor:
        dtype = floats(torch.ones((), dtype=torch.result_type(input, n))).dtype
        x = torch.as_tensor(input).to(torch.float64)
        x = 2 * x - 1 if shifted else x
        degree = n.to(torch.int64).to(torch.float64) if isinstance(n, Tensor) else int(n)
        found = polynomial(x, degree, first(x), following)
        if bounded:
            found = torch.where(
                torch.as_tensor(degree) > _LIMIT.get(dtype, 128), torch.full_like(found, math.nan), found
            )
        return found.to(dtype)

    function = getattr(torch.special, name.removeprefix("special."))
    case = lambda x, n: (function(x, n), function(x, 4), function(x, 19), function(x, 0), function(1.5, n))  # noqa: E731
    op(
        name,
        why=missing(f"aten::{name.replace('.', '_')}"),
        tries=_degrees,
        sizes=(9, 14, 1),
        case=case,
        to=computed,
    )


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
