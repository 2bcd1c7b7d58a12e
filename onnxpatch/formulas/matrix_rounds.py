"""Linear algebra of matrices of any number of rows: one round of a loop in the graph for each row, in float64.

`loop` is `onnxpatch.while_loop`, which stands on a higher floor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

State = tuple[Tensor, ...]
Loop = Callable[..., Callable[[Callable[..., State]], Callable[..., Any]]]


def rounds(loop: Loop, count: Any, step: Callable[..., State], *state: Tensor) -> State:
    """step(k, *state) for k from 0 to count - 1; count: a size."""
    # Counted in the graph; as a size it would be a constant under trace.
    total = torch.ones_like(torch.arange(count)).sum()

    @loop(lambda k, *parts: k < total)
    def run(k: Tensor, *parts: Tensor) -> State:
        return (k + 1, *step(k, *parts))

    found: Any = run(torch.zeros((), dtype=torch.int64), *(part.clone() for part in state))
    return tuple(found[1:])


def row(x: Tensor, k: Tensor) -> Tensor:
    """Row k, (..., 1, n)."""
    return x.index_select(-2, k.reshape(1))


def column(x: Tensor, k: Tensor) -> Tensor:
    """Column k, (..., m, 1)."""
    return x.index_select(-1, k.reshape(1))


def swapped(x: Tensor, k: Tensor, pivot: Tensor) -> Tensor:
    """Rows k and `pivot` (..., 1) exchanged."""
    places = torch.arange(x.shape[-2], device=x.device)
    order = torch.where(places == k, pivot, torch.where(places == pivot, k, places))
    return torch.gather(x, -2, order.unsqueeze(-1).expand_as(x))


def pivot_row(x: Tensor, k: Tensor) -> Tensor:
    """The row from k on whose number in column k is the largest, (..., 1)."""
    size = column(x, k).squeeze(-1).abs()
    below = torch.arange(x.shape[-2], device=x.device) >= k
    return torch.where(below, size, -torch.ones_like(size)).argmax(-1, keepdim=True)


def solved(loop: Loop, a: Tensor, b: Tensor) -> Tensor:
    """x with a x = b, by Gauss and Jordan with partial pivoting. b: (..., n, k)."""
    lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]) if a.dim() != b.dim() or a.dim() > 2 else ()
    parts = [one.to(torch.float64).expand([*lead, *one.shape[-2:]]) for one in (a, b)]

    def step(k: Tensor, both: Tensor) -> State:
        both = swapped(both, k, pivot_row(both, k))
        head = row(both, k)
        scaled = head / column(head, k)
        places = torch.arange(both.shape[-2], device=both.device)
        return (torch.where((places == k)[:, None], scaled, both - column(both, k) * scaled),)

    size = a.shape[-1]
    (found,) = rounds(loop, size, step, torch.cat(parts, -1))
    return found.narrow(-1, size, b.shape[-1])


def substituted(loop: Loop, a: Tensor, b: Tensor, upper: bool) -> Tensor:
    """x with a x = b for a triangle, one row after the other. What is beside the triangle must be 0."""
    lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]) if a.dim() != b.dim() or a.dim() > 2 else ()
    a, b = (one.to(torch.float64).expand([*lead, *one.shape[-2:]]) for one in (a, b))
    places = torch.arange(b.shape[-2], device=b.device)
    last = torch.ones_like(places).sum() - 1

    def step(k: Tensor, x: Tensor) -> State:
        at = last - k if upper else k
        line = row(a, at)
        # Rows of x that are not known yet are 0.
        found = (row(b, at) - torch.matmul(line, x)) / column(line, at)
        return (torch.where((places == at)[:, None], found, x),)

    return rounds(loop, b.shape[-2], step, torch.zeros_like(b))[0]


def identity(x: Tensor) -> Tensor:
    """The identity with as many rows as x has columns, in float64."""
    places = torch.arange(x.shape[-1], device=x.device)
    return (places[:, None] == places).to(torch.float64)


def ticks(x: Tensor) -> tuple[Tensor, Tensor, Any]:
    """The numbers of the rows, those of the columns, and how many there are of what is fewer."""
    rows, columns = (torch.arange(x.shape[axis], device=x.device) for axis in (-2, -1))
    return rows, columns, torch.minimum(torch.ones_like(rows).sum(), torch.ones_like(columns).sum())


# ------------------------------------------------------------------ LU
def failed(bad: Tensor) -> Tensor:
    """The `info` of torch's factorizations: the first row, counted from 1, where (..., m, n) is true; 0 for none."""
    places = bad.to(torch.int32).amax(-1)
    first = (places.argmax(-1) + 1).to(torch.int32)
    return torch.where(places.amax(-1) > 0, first, torch.zeros_like(first))


def lu(loop: Loop, a: Tensor, pivoted: bool) -> tuple[Tensor, Tensor]:
    """(L and U in one matrix, the pivots counted from 1) of (..., m, n), as LAPACK has them."""
    rows, columns, most = ticks(a)
    pivots = torch.arange(most, device=a.device) + 1 + torch.zeros_like(a[..., 0, :1], dtype=torch.int64)

    def step(k: Tensor, both: Tensor, pivots: Tensor) -> State:
        if pivoted:
            best = pivot_row(both, k)
            both, pivots = swapped(both, k, best), torch.where(_ticks(pivots) == k, best + 1, pivots)
        head = row(both, k)
        corner = column(head, k)
        # A column of zeros is left as it is.
        factor = column(both, k) / torch.where(corner == 0, torch.ones_like(corner), corner)
        factor = torch.where((rows > k)[:, None], factor, torch.zeros_like(factor))
        rest = torch.where(columns > k, both - factor * head, both)
        return torch.where((columns == k) & (rows > k)[:, None], factor, rest), pivots

    found = rounds(loop, most, step, a.to(torch.float64), pivots)
    return found[0], found[1]


def singular(loop: Loop, a: Tensor) -> Tensor:
    """The `info` of an inverse: the first pivot that is 0, counted from 1; 0 for none."""
    return failed((lu(loop, a, True)[0] == 0) & (identity(a) == 1))


def _ticks(x: Tensor) -> Tensor:
    return torch.arange(x.shape[-1], device=x.device)


def order_of(loop: Loop, pivots: Tensor, like: Tensor) -> Tensor:
    """Which row of a matrix each row of its LU is, (..., m). like: the LU, as many of whose pivots count as it has."""
    rows, _, most = ticks(like)
    start = rows + torch.zeros_like(like[..., :1, 0], dtype=torch.int64)

    def step(k: Tensor, order: Tensor) -> State:
        return (swapped(order.unsqueeze(-1), k, column(pivots, k) - 1).squeeze(-1),)

    return rounds(loop, most, step, start)[0]


# ------------------------------------------------------------------ Householder's reflections
def reflected(loop: Loop, a: Tensor) -> tuple[Tensor, Tensor]:
    """(R, and below it the reflections without their 1; their factors) of (..., m, n), with LAPACK's signs."""
    rows, columns, most = ticks(a)
    factors = torch.arange(most, device=a.device) * 0 + torch.zeros_like(a[..., 0, :1], dtype=torch.float64)

    def step(k: Tensor, both: Tensor, factors: Tensor) -> State:
        line = column(both, k)
        head, below = row(line, k), torch.where((rows > k)[:, None], line, torch.zeros_like(line))
        rest = (below * below).sum(-2, keepdim=True)
        length = torch.sqrt(head * head + rest)
        end = torch.where(head < 0, length, -length)
        # Nothing below: no reflection. The other numbers keep 0 / 0 out of what is not taken.
        none = rest == 0
        factor = torch.where(none, torch.zeros_like(end), (end - head) / torch.where(none, torch.ones_like(end), end))
        mirror = below / torch.where(none, torch.ones_like(end), head - end)
        whole = mirror + (rows == k).to(torch.float64)[:, None]
        # What lies before is done: a NaN beside it does not reach it.
        inside, own = (rows >= k)[:, None] & (columns >= k), (columns == k) & (rows > k)[:, None]
        change = factor * whole * _times(whole, both)
        both = torch.where(own, mirror, torch.where(inside, both - change, both))
        return both, torch.where(_ticks(factors) == k, factor.squeeze(-1), factors)

    found = rounds(loop, most, step, a.to(torch.float64), factors)
    return found[0], found[1]


def _times(line: Tensor, x: Tensor) -> Tensor:
    """A column (..., m, 1) as a row, times (..., m, n)."""
    return torch.matmul(line.squeeze(-1).unsqueeze(-2), x)


def turned(loop: Loop, mirrors: Tensor, factors: Tensor, x: Tensor, transposed: bool = False) -> Tensor:
    """Q x, or Qᵀ x, of the reflections that `reflected` gives. x: (..., m, k)."""
    mirrors, factors = mirrors.to(torch.float64), factors.to(torch.float64)
    rows, total = torch.arange(mirrors.shape[-2], device=x.device), torch.ones_like(_ticks(factors)).sum()

    def step(k: Tensor, found: Tensor) -> State:
        at = k if transposed else total - 1 - k
        below = torch.where((rows > at)[:, None], column(mirrors, at), torch.zeros_like(mirrors[..., :1]))
        whole = below + (rows == at).to(torch.float64)[:, None]
        change = column(factors.unsqueeze(-2), at) * whole * _times(whole, found)
        return (torch.where((rows >= at)[:, None], found - change, found),)

    return rounds(loop, factors.shape[-1], step, x.to(torch.float64))[0]


# ------------------------------------------------------------------ Jacobi's rotations
_SMALL = 1e-26  # of what is left beside the diagonal, squared, relative to all
_FAR = 1e-14  # the same, of a result
_MOST_SWEEPS = 20


def eigh(loop: Loop, a: Tensor) -> tuple[Tensor, Tensor]:
    """(Eigenvalues, not in order; eigenvectors in columns) of symmetric matrices, n / 2 rotations at once.

    In round r row i is turned against row (r - i) mod n: in n rounds each against each other.
    """
    places = _ticks(a)
    size = torch.ones_like(places).sum()
    same = (places[:, None] == places).to(torch.float64)

    def goes_on(k: Tensor, x: Tensor, vectors: Tensor) -> Tensor:
        return _left(x, _SMALL).any() & (k < _MOST_SWEEPS * torch.ones_like(_ticks(x)).sum())

    @loop(goes_on)
    def run(k: Tensor, x: Tensor, vectors: Tensor) -> State:
        partner = torch.remainder(k - places, size)
        meets = (partner[:, None] == places).to(torch.float64)
        diagonal = (x * same).sum(-1)
        other, between = (diagonal.unsqueeze(-2) * meets).sum(-1), (x * meets).sum(-1)
        # Of both rows of a pair one has the negative slope of the other, and so one the negative sine.
        alone = (partner == places) | (between == 0)
        slope = (other - diagonal) / (2 * torch.where(alone, torch.ones_like(between), between))
        sign = torch.where(
            (slope < 0) | ((slope == 0) & (partner < places)), -torch.ones_like(slope), torch.ones_like(slope)
        )
        tangent = sign / (slope.abs() + torch.sqrt(slope * slope + 1))
        tangent = torch.where(alone, torch.zeros_like(tangent), tangent)
        cosine = 1 / torch.sqrt(tangent * tangent + 1)
        turn = same * cosine.unsqueeze(-2) - meets * (tangent * cosine).unsqueeze(-1)
        back = same * cosine.unsqueeze(-2) + meets * (tangent * cosine).unsqueeze(-1)
        # meets is its own transpose, and the sines change sign with the order of the pair: back is turn's transpose.
        return k + 1, torch.matmul(torch.matmul(turn, x), back), torch.matmul(vectors, back)

    wide = a.to(torch.float64)
    found = run(torch.zeros((), dtype=torch.int64), wide.clone(), same + torch.zeros_like(wide))
    # Where the rounds did not lead there, nothing is known.
    unknown = _left(found[1], _FAR)
    values = torch.where(unknown, torch.nan, (found[1] * same).sum(-1))
    return values, torch.where(unknown.unsqueeze(-1), torch.nan, found[2])


def _left(x: Tensor, most: float) -> Tensor:
    """Of each matrix, whether more than this share is beside its diagonal, (..., 1)."""
    ticks = _ticks(x)
    off = torch.where(ticks[:, None] == ticks, torch.zeros_like(x), x * x).sum(-1).sum(-1, keepdim=True)
    # Of an axis: the trace exporter makes a 0-d float64 beside a number float32, in which squares are soon infinite.
    return off > most * (x * x).sum(-1).sum(-1, keepdim=True)
