"""Orthogonal factors of matrices, in float64: reflections (QR) and rotations (eigenvalues)."""

from __future__ import annotations

import torch
from torch import Tensor

from onnxpatch.formulas.matrix_rounds import (
    Loop,
    Number,
    State,
    along,
    column,
    inverted,
    levels,
    rounds,
    row,
    row_blocks,
    size_along,
    strange,
    ticks,
)


# ------------------------------------------------------------------ Householder's reflections
def small_qr(a: Tensor, rows: int, n: int) -> tuple[Tensor, Tensor]:
    """(Q, R) of (..., rows, n), unrolled, with LAPACK's signs: Q (..., rows, k), R (..., k, n), k = min(rows, n)."""
    k = min(rows, n)
    places = torch.arange(rows, device=a.device)
    upper, q = a, torch.eye(rows, dtype=a.dtype, device=a.device).expand([*a.shape[:-2], rows, rows])
    for j in range(min(rows - 1, k)):
        column = torch.where(places >= j, upper[..., :, j], torch.zeros_like(upper[..., :, j]))
        head = column[..., j : j + 1]
        length = torch.sqrt((column * column).sum(-1, keepdim=True))
        # The sign of the head is added, never subtracted: no digits cancel, and the signs of R are LAPACK's.
        mirror = column + torch.where(places == j, torch.where(head < 0, -length, length), torch.zeros_like(column))
        square = (mirror * mirror).sum(-1, keepdim=True)
        # A column of zeros needs no reflection. The inner `where` keeps 2 / 0 out of the branch that is not taken.
        some = square != 0
        scale = torch.where(some, 2 / torch.where(some, square, torch.ones_like(square)), torch.zeros_like(square))
        standing, lying = mirror.unsqueeze(-1), mirror.unsqueeze(-2)
        upper = upper - torch.matmul(standing * scale.unsqueeze(-1), torch.matmul(lying, upper))
        q = q - torch.matmul(torch.matmul(q, standing), lying * scale.unsqueeze(-1))
    return q[..., :, :k], torch.triu(upper[..., :k, :])


def reflected(loop: Loop, a: Tensor) -> tuple[Tensor, Tensor]:
    """(R, and below it the reflections without their 1; their factors) of (..., m, n), with LAPACK's signs."""
    rows, columns, most = ticks(a)
    size, count, whole = row_blocks(most)
    inside, places = torch.arange(size, device=a.device), torch.arange(most, device=a.device)
    last = torch.ones_like(places).sum() - 1

    def block(number: Number, both: Tensor, factors: Tensor) -> State:
        """The reflections of a block of columns, one after the other; the columns behind them all at once."""
        first = number * size
        behind = size if whole else torch.minimum(first + size, last + 1)

        def step(k: Number, part: Tensor, own: Tensor) -> State:
            at, own_column = first + k, inside == k
            below, line = (rows > at)[:, None], column(part, k)
            head, tail = row(line, at), torch.where(below, line, torch.zeros_like(line))
            rest = (tail * tail).sum(-2, keepdim=True)
            length = torch.sqrt(head * head + rest)
            end = torch.where(head < 0, length, -length)
            # Nothing below: no reflection. The other numbers keep 0 / 0 out of what is not taken.
            none = rest == 0
            factor = torch.where(none, torch.zeros_like(end), (end - head) / torch.where(none, 1.0, end))
            mirror = tail / torch.where(none, 1.0, head - end)
            line = mirror + (rows == at).to(torch.float64)[:, None]
            # What lies before is done: a NaN beside it does not reach it.
            after = part - factor * line * torch.matmul(line[..., 0].unsqueeze(-2), part)
            part = torch.where((rows >= at)[:, None] & (inside >= k), after, part)
            return torch.where(below & own_column, mirror, part), torch.where(own_column, factor[..., 0], own)

        part = column(both, torch.minimum(first + inside, last))
        part, own = rounds(loop, behind if whole else behind - first, step, part, torch.zeros_like(part[..., 0, :]))
        if whole and size_along(a, -1) == size:
            return part, own
        here = torch.clamp(columns - first, 0, size - 1)
        both = torch.where((columns >= first) & (columns < behind), column(part, here), both)
        own = own.index_select(-1, torch.clamp(places - first, 0, size - 1))
        factors = torch.where(places >= first, own, factors)
        after = _product(_panel(both, factors, number, size), both, transposed=True)
        return torch.where(columns >= behind, after, both), factors

    start = a.to(torch.float64)
    found = rounds(loop, count, block, start, places * 0 + torch.zeros_like(start[..., 0, :1]))
    return found[0], found[1]


def _panel(mirrors: Tensor, factors: Tensor, number: Number, size: int) -> tuple[Tensor, Tensor]:
    """(V, T) of a block of reflections, whose product is I - V T Vᵀ (Schreiber and Van Loan, 1989)."""
    rows, inside = (torch.arange(n, device=mirrors.device) for n in (mirrors.shape[-2], size))
    last = torch.ones_like(along(factors)).sum() - 1
    places = number * size + inside
    at, some, level = torch.minimum(places, last), places <= last, levels(places, upper=True)
    v = torch.where(rows[:, None] > at, column(mirrors, at), (rows[:, None] == at).to(torch.float64))
    v, own = (torch.where(some, x, torch.zeros_like(x)) for x in (v, factors.index_select(-1, at)))
    products = torch.matmul(v.transpose(-2, -1).clone(), v) * own.unsqueeze(-2)
    above = torch.where(level > 0, products, (level == 0).to(torch.float64))
    return v, own.unsqueeze(-1) * inverted(above, level, size)


def _product(panel: tuple[Tensor, Tensor], x: Tensor, transposed: bool) -> Tensor:
    """Of a panel's reflections, or of its transpose, with x."""
    v, t = panel
    t = t.transpose(-2, -1).clone() if transposed else t
    return x - torch.matmul(v, torch.matmul(t, torch.matmul(v.transpose(-2, -1).clone(), x)))


def turned(loop: Loop, mirrors: Tensor, factors: Tensor, x: Tensor, transposed: bool = False) -> Tensor:
    """Q x, or Qᵀ x, of the reflections that `reflected` gives. x: (..., m, k)."""
    mirrors, factors = mirrors.to(torch.float64), factors.to(torch.float64)
    size, count, _ = row_blocks(size_along(factors, -1))
    last = torch.div(torch.ones_like(along(factors)).sum() - 1, size, rounding_mode="trunc")

    def step(k: Number, found: Tensor) -> State:
        return (_product(_panel(mirrors, factors, k if transposed else last - k, size), found, transposed),)

    def line(k: Number, found: Tensor) -> State:
        at = k if transposed else many - 1 - k
        whole = torch.where((rows > at)[:, None], column(mirrors, at), (rows == at).to(torch.float64)[:, None])
        change = column(factors.unsqueeze(-2), at) * whole * torch.matmul(whole[..., 0].unsqueeze(-2), found)
        return (torch.where((rows >= at)[:, None], found - change, found),)

    # A product with a NaN reaches all rows; one reflection after the other, those that depend on it.
    x, rows, many = x.to(torch.float64), along(mirrors[..., 0]), torch.ones_like(along(factors)).sum()
    alone = strange(mirrors, factors, x)
    (x,) = rounds(loop, torch.ones_like(many) * count * (1 - alone), step, x)
    return rounds(loop, many * alone, line, x)[0]


# ------------------------------------------------------------------ Jacobi's rotations
_SMALL = 1e-26  # of what is left beside the diagonal, squared, relative to all
_FAR = 1e-14  # the same, of a result
_MOST_SWEEPS = 20


def eigh(loop: Loop, a: Tensor) -> tuple[Tensor, Tensor]:
    """(Eigenvalues, not in order; eigenvectors in columns) of symmetric matrices, n / 2 rotations at once.

    In round r row i is turned against row (r - i) mod n: in n rounds each against each other.
    """
    places = along(a)
    size = torch.ones_like(places).sum()
    same = (places[:, None] == places).to(torch.float64)

    def goes_on(k: Tensor, x: Tensor, vectors: Tensor) -> Tensor:
        return _left(x, _SMALL).any() & (k < _MOST_SWEEPS * torch.ones_like(along(x)).sum())

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
    ticks = along(x)
    off = torch.where(ticks[:, None] == ticks, torch.zeros_like(x), x * x).sum(-1).sum(-1, keepdim=True)
    # Of an axis: the trace exporter makes a 0-d float64 beside a number float32, in which squares are soon infinite.
    return off > most * (x * x).sum(-1).sum(-1, keepdim=True)
