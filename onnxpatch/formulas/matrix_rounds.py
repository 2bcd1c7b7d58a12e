"""Linear algebra of matrices of any number of rows: one round of a loop in the graph for each row, in float64.

Up to eight rows that no input changes are unrolled. `loop` is `onnxpatch.while_loop`, which stands on a higher floor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch.formulas.symbolic import fixed_size, symbolic

FEW = 8  # rounds that are unrolled
_BLOCK = 64  # rows that are done at once
State = tuple[Tensor, ...]
Number = Any  # a 0-d tensor, or an int in a round that is unrolled
Loop = Callable[..., Callable[[Callable[..., State]], Callable[..., Any]]]


def rounds(loop: Loop, count: Any, step: Callable[..., State], *state: Tensor) -> State:
    """step(k, *state) for k from 0 to count - 1; count: a size, of which a small number is unrolled."""
    if isinstance(count, int) and count <= FEW:
        for k in range(count):
            state = step(k, *state)
        return state
    # Counted in the graph; as a size it would be a constant under trace.
    total = torch.ones_like(torch.arange(count)).sum()

    @loop(lambda k, *parts: k < total)
    def run(k: Tensor, *parts: Tensor) -> State:
        return (k + 1, *step(k, *parts))

    found: Any = run(torch.zeros((), dtype=torch.int64), *(part.clone() for part in state))
    return tuple(found[1:])


def size_along(x: Tensor, axis: int) -> Any:
    """A number where no input changes it, under trace too."""
    return x.shape[axis] if symbolic(x.shape[axis]) else fixed_size(x, axis)


def row_blocks(count: Any) -> tuple[int, Any, bool]:
    """(How many rows are done at once, how often; whether these are all) of so many."""
    if isinstance(count, int) and count <= _BLOCK:
        return count, 1, True
    return _BLOCK, torch.ones_like(torch.arange(count)[::_BLOCK]).sum(), False


def row(x: Tensor, k: Number) -> Tensor:
    """Row k, (..., 1, n), or several rows."""
    return x[..., k : k + 1, :] if isinstance(k, int) else x.index_select(-2, k.reshape(-1))


def column(x: Tensor, k: Number) -> Tensor:
    """Column k, (..., m, 1), or several."""
    return x[..., k : k + 1] if isinstance(k, int) else x.index_select(-1, k.reshape(-1))


def swapped(x: Tensor, k: Number, pivot: Tensor) -> Tensor:
    """(..., m), with the numbers at k and at `pivot` (..., 1) exchanged."""
    places = along(x)
    order = torch.where(places == k, pivot, torch.where(places == pivot, k, places))
    return torch.gather(x, -1, order)


def picked(x: Tensor, places: Tensor) -> Tensor:
    """Columns (..., m, k) of each matrix; places: (..., k)."""
    if x.dim() == 2:
        return x.index_select(-1, places)
    return torch.gather(x, -1, places.unsqueeze(-2) + torch.zeros_like(x[..., :1], dtype=torch.int64))


def solved(loop: Loop, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """(x with a x = b, the first pivot that is 0, counted from 1), by elimination in both. b: (..., n, k)."""
    lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]) if a.dim() != b.dim() or a.dim() > 2 else ()
    parts = [one.to(torch.float64).expand([*lead, *one.shape[-2:]]) for one in (a, b)]
    count, size = size_along(a, -1), a.shape[-1]
    both, order = eliminated(loop, torch.cat(parts, -1), count)
    both = picked(both, order.argsort(-1))
    upper = torch.triu(both.narrow(-2, 0, size).transpose(-2, -1))
    right = both.narrow(-2, size, b.shape[-1]).transpose(-2, -1)
    return substituted(loop, upper, right, True, count), failed((upper == 0) & (identity(a) == 1))


def by_rows(a: Tensor, b: Tensor, n: int, upper: bool) -> Tensor:
    """x with a x = b for a triangle of n rows, unrolled: many small products are slow in onnxruntime."""
    rows: dict[int, Tensor] = {}
    for i in reversed(range(n)) if upper else range(n):
        rest = b[..., i, :]
        for j, known in rows.items():
            rest = rest - a[..., i, j : j + 1] * known
        rows[i] = rest / a[..., i, i : i + 1]
    return torch.stack([rows[i] for i in range(n)], -2)


def inverted(a: Tensor, size: int, upper: bool = False, inside: Tensor | None = None) -> Tensor:
    """The inverse of triangles (..., size, size): of blocks of 1, 2, 4, ... rows, each time of twice as many.

    Two neighbours A and D with C below (or above) them have D⁻¹ C A⁻¹, or A⁻¹ C D⁻¹, in its place, with a minus.
    inside: the numbers of the rows, where there may be fewer than size.
    """
    inside = torch.arange(size) if inside is None else inside
    same = identity(a) == 1
    found = torch.where(same, 1 / torch.where(same, a, 1.0), 0.0)
    for level in range((size - 1).bit_length()):
        part, pair = (torch.div(inside, 1 << up, rounding_mode="trunc") for up in (level, level + 1))
        beside = part[:, None] < part if upper else part[:, None] > part
        between = torch.where((pair[:, None] == pair) & beside, a, 0.0)
        found = found - torch.matmul(torch.matmul(found, between), found)
    return found


def substituted(loop: Loop, a: Tensor, b: Tensor, upper: bool, count: Any = None) -> Tensor:
    """x with a x = b for a triangle, one block of rows after the other. What is beside the triangle must be 0."""
    lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]) if a.dim() != b.dim() or a.dim() > 2 else ()
    a, b = (one.to(torch.float64).expand([*lead, *one.shape[-2:]]) for one in (a, b))
    places = torch.arange(b.shape[-2], device=b.device)
    size, count, whole = row_blocks(size_along(b, -2) if count is None else count)
    if whole and size <= FEW:
        return by_rows(a, b, size, upper)
    inside, last = torch.arange(size, device=b.device), torch.ones_like(places).sum() - 1
    number = torch.div(places, size, rounding_mode="trunc")

    def step(k: Number, x: Tensor) -> State:
        first = (number[-1] - k if upper else k) * size
        at, some = torch.minimum(first + inside, last), first + inside <= last
        lines = row(a, at)
        corner = torch.where(some[:, None] & some, column(lines, at), (inside[:, None] == inside).to(torch.float64))
        found = torch.matmul(inverted(corner, size, upper), row(b, at) - torch.matmul(lines, x))
        return (torch.where((number * size == first)[:, None], row(found, places - number * size), x),)

    def line(k: Number, x: Tensor) -> State:
        at = last - k if upper else k
        found = (row(b, at) - torch.matmul(row(a, at), x)) / column(row(a, at), at)
        return (torch.where((places == at)[:, None], found, x),)

    # Of a block, all rows are lost to what is not finite; row by row, those that depend on it.
    alone = strange(torch.where((a == 0) & (identity(a) == 1), torch.nan, a), b)
    if whole:
        x = torch.where(alone == 0, torch.matmul(inverted(a, size, upper), b), torch.zeros_like(b))
    else:
        (x,) = rounds(loop, count * (1 - alone), step, torch.zeros_like(b))
    return rounds(loop, (last + 1) * alone, line, x)[0]


def strange(*tensors: Tensor) -> Tensor:
    """1 where a number is NaN or infinite, else 0."""
    apart = [(x - x).sum() for x in tensors]
    return (torch.isnan(torch.stack(apart)).to(torch.int64).sum() > 0).to(torch.int64)


def cholesky(loop: Loop, a: Tensor) -> Tensor:
    """The triangle L with L Lᵀ = a, one block of columns after the other; NaN where there is none."""
    a, places = a.to(torch.float64), torch.arange(a.shape[-1], device=a.device)
    size, count, whole = row_blocks(size_along(a, -1))

    def columns(corner: Tensor) -> Tensor:
        """Of a block, column by column."""
        inside = torch.arange(size, device=a.device)

        def step(k: Number, left: Tensor) -> State:
            rest = column(corner, k) - (left * row(left, k)).sum(-1, keepdim=True)
            rest = torch.where((inside >= k)[:, None], rest / torch.sqrt(row(rest, k)), torch.zeros_like(rest))
            return (torch.where(inside == k, rest, left),)

        return rounds(loop, size, step, torch.zeros_like(corner))[0]

    if whole:
        return columns(a)
    inside, last = torch.arange(size, device=a.device), torch.ones_like(places).sum() - 1
    number = torch.div(places, size, rounding_mode="trunc")

    def step(k: Number, left: Tensor) -> State:
        at, some = torch.minimum(k * size + inside, last), k * size + inside <= last
        rest = column(a, at) - torch.matmul(left, row(left, at).transpose(-2, -1).clone())
        same = (inside[:, None] == inside).to(torch.float64)
        corner = columns(torch.where(some[:, None] & some, row(rest, at), same))
        below = torch.matmul(rest, inverted(corner, size).transpose(-2, -1).clone())
        found = torch.where((number == k)[:, None], row(corner, places - number * size), below)
        found = torch.where((number < k)[:, None], torch.zeros_like(found), found)
        return (torch.where(number == k, column(found, places - number * size), left),)

    return rounds(loop, count, step, torch.zeros_like(a))[0]


def identity(x: Tensor) -> Tensor:
    """The identity with as many rows as x has columns, in float64."""
    places = torch.arange(x.shape[-1], device=x.device)
    return (places[:, None] == places).to(torch.float64)


def ticks(x: Tensor) -> tuple[Tensor, Tensor, Any]:
    """The numbers of the rows, those of the columns, and how many there are of what is fewer."""
    rows, columns = (torch.arange(x.shape[axis], device=x.device) for axis in (-2, -1))
    sizes = [size_along(x, axis) for axis in (-2, -1)]
    if all(isinstance(size, int) for size in sizes):
        return rows, columns, min(sizes)
    return rows, columns, torch.minimum(torch.ones_like(rows).sum(), torch.ones_like(columns).sum())


# ------------------------------------------------------------------ LU
def failed(bad: Tensor) -> Tensor:
    """The `info` of torch's factorizations: the first row, counted from 1, where (..., m, n) is true; 0 for none."""
    places = bad.to(torch.int32).amax(-1)
    first = (places.argmax(-1) + 1).to(torch.int32)
    return torch.where(places.amax(-1) > 0, first, torch.zeros_like(first))


def eliminated(loop: Loop, a: Tensor, most: Any) -> tuple[Tensor, Tensor]:
    """(The columns of L and U in one matrix, as rows, those of L not divided; when each row was the pivot, (..., m)).

    Of (..., m, n), with the largest pivot of `most` columns, which are at most m and n. No row moves; one that is never
    the pivot has the step `most`. A block of columns goes column by column, those behind it all at once.
    """
    rows, columns = (torch.arange(a.shape[axis], device=a.device) for axis in (-2, -1))
    whole = isinstance(most, int) and most <= _BLOCK
    most = most if isinstance(most, int) else torch.ones_like(torch.arange(most)).sum()  # a size is none in a round
    width = torch.ones_like(columns).sum()
    size: Any = _BLOCK if isinstance(most, int) else torch.clamp(width, 1, _BLOCK)
    inside = columns if whole else torch.arange(size, device=a.device)

    def column_by_column(count: Any, part: Tensor, order: Tensor, at: Tensor) -> State:
        def step(k: Number, part: Tensor, order: Tensor) -> State:
            line, now = row(part, k), k if whole else at.index_select(0, k.reshape(-1))
            best = torch.where(order == most, line[..., 0, :].abs(), -1.0).argmax(-1, keepdim=True)
            order, head = torch.where(rows == best, now, order), picked(part, best)
            corner = row(head, k)
            # A column of zeros is left as it is.
            factor = torch.where((order == most).unsqueeze(-2), line / torch.where(corner == 0, 1.0, corner), 0.0)
            return part - torch.where((at > now)[:, None], head, 0.0) * factor, order

        return rounds(loop, count, step, part, order)

    def block(number: Number, both: Tensor, order: Tensor) -> State:
        first = number * size
        at = torch.minimum(first + inside, width - 1)
        part, order = column_by_column(torch.clamp(most - first, max=size), row(both, at), order, at)
        _, factors = divided(part, order, at)
        pivots = (order.unsqueeze(-2) == at[:, None]).to(torch.int32).argmax(-1)
        same = (inside[:, None] == inside).to(torch.float64)
        lower = torch.where(inside[:, None] < inside, picked(factors, pivots), same)
        behind = torch.where((columns >= first + size)[:, None], picked(both, pivots), 0.0)
        both = both - torch.matmul(torch.matmul(behind, inverted(lower, _BLOCK, True, inside)), factors)
        return both.index_copy(-2, at, part), order

    start = a.to(torch.float64).transpose(-2, -1).clone()
    order = torch.zeros_like(rows + start[..., 0, :], dtype=torch.int64) + most
    if whole:
        both, order = column_by_column(most, start, order, columns)
    else:
        both, order = rounds(loop, torch.div(most + size - 1, size, rounding_mode="trunc"), block, start, order)
    return both, order


def divided(part: Tensor, order: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """(The rows `at` of what `eliminated` gives, with L divided by its pivots; of them L alone.)"""
    below = order.unsqueeze(-2) > at[:, None]
    corner = torch.where(order.unsqueeze(-2) == at[:, None], part, 0.0).sum(-1, keepdim=True)
    factors = torch.where(below, part / torch.where(corner == 0, 1.0, corner), 0.0)
    return torch.where(below, factors, part), factors


def lu(loop: Loop, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(L and U in one matrix, the pivots counted from 1, the order of its rows) of (..., m, n), as LAPACK has them."""
    _, columns, most = ticks(a)
    both, order = eliminated(loop, a, most)
    steps = torch.arange(most, device=a.device)

    def step(k: Number, pivots: Tensor, stands: Tensor) -> State:
        place = (torch.gather(order, -1, stands) == k).to(torch.int32).argmax(-1, keepdim=True)
        return torch.where(steps == k, place + 1, pivots), swapped(stands, k, place)

    start = torch.zeros_like(order) + along(order)
    pivots, stands = rounds(loop, most, step, start.narrow(-1, 0, steps.shape[0]), start)
    return picked(divided(both, order, columns)[0], stands).transpose(-2, -1), pivots, stands


def along(x: Tensor) -> Tensor:
    return torch.arange(x.shape[-1], device=x.device)


def order_of(loop: Loop, pivots: Tensor, like: Tensor) -> Tensor:
    """Which row of a matrix each row of its LU is, (..., m). like: the LU, as many of whose pivots count as it has."""
    rows, _, most = ticks(like)
    start = rows + torch.zeros_like(like[..., :1, 0], dtype=torch.int64)

    def step(k: Number, order: Tensor) -> State:
        return (swapped(order, k, column(pivots, k) - 1),)

    return rounds(loop, most, step, start)[0]
