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
    """step(k, *state) for k from 0 to count - 1; count: a number, of which a small one is unrolled, or a tensor."""
    if isinstance(count, int) and count <= FEW:
        for k in range(count):
            state = step(k, *state)
        return state
    total = torch.ones_like(torch.arange(count)).sum() if isinstance(count, int) else count

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
    """(x with a x = b, the first pivot that is 0, counted from 1), by Gauss and Jordan. b: (..., n, k)."""
    lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]) if a.dim() != b.dim() or a.dim() > 2 else ()
    parts = [one.to(torch.float64).expand([*lead, *one.shape[-2:]]) for one in (a, b)]
    both, order = eliminated(loop, torch.cat(parts, -1), size_along(a, -1), alone=True)
    both, rows = picked(both, order.argsort(-1)), a.shape[-1]
    corner = (both.narrow(-2, 0, rows) * identity(a)).sum(-1, keepdim=True)
    return both.narrow(-2, rows, b.shape[-1]).transpose(-2, -1) / corner, failed(corner == 0)


def by_rows(a: Tensor, b: Tensor, n: int, upper: bool) -> Tensor:
    """x with a x = b for a triangle of n rows, unrolled: many small products are slow in onnxruntime."""
    rows: dict[int, Tensor] = {}
    for i in reversed(range(n)) if upper else range(n):
        rest = b[..., i, :]
        for j, known in rows.items():
            rest = rest - a[..., i, j : j + 1] * known
        rows[i] = rest / a[..., i, i : i + 1]
    return torch.stack([rows[i] for i in range(n)], -2)


def levels(places: Tensor, upper: bool = False) -> Tensor:
    """At which level, from 1, `inverted` comes to each number of a triangle: 0 on its diagonal, -1 on the other side.

    places: numbers of rows one after the other, from a multiple of a power of two that is not less than their count.
    """
    halves = 0.5 ** torch.arange(_BLOCK.bit_length() - 1, device=places.device)
    parts = torch.floor(places[:, None] * halves)
    apart = (parts[:, None] != parts).to(torch.float32).sum(-1)
    return torch.where(places[:, None] > places if upper else places[:, None] < places, -1.0, apart)


def inverted(a: Tensor, level: Tensor, size: int = _BLOCK) -> Tensor:
    """The inverse of triangles (..., n, n): of blocks of 1, 2, 4, ... rows, each time of twice as many.

    Two neighbours A and D with C below (or above) them have D⁻¹ C A⁻¹, or A⁻¹ C D⁻¹, in its place, with a minus.
    level: of `levels`. size: not less than n.
    """
    found = torch.where(level == 0, 1 / torch.where(level == 0, a, 1.0), 0.0)
    for number in range(1, (size - 1).bit_length() + 1):
        found = found - torch.matmul(torch.matmul(found, torch.where(level == number, a, 0.0)), found)
    return found


def substituted(loop: Loop, a: Tensor, b: Tensor, upper: bool) -> Tensor:
    """x with a x = b for a triangle, one block of rows after the other. What is beside the triangle must be 0."""
    lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]) if a.dim() != b.dim() or a.dim() > 2 else ()
    a, b = (one.to(torch.float64).expand([*lead, *one.shape[-2:]]) for one in (a, b))
    places = torch.arange(b.shape[-2], device=b.device)
    size, count, whole = row_blocks(size_along(b, -2))
    if whole and size <= FEW:
        return by_rows(a, b, size, upper)
    inside, last = torch.arange(size, device=b.device), torch.ones_like(places).sum() - 1
    number = torch.floor(places / size).to(torch.int64)
    # Of the last block's rows: of constants, these would be in the file.
    level = levels(inside if whole else number[-1] * size + inside, upper)
    same = (level == 0).to(torch.float64)

    def step(k: Number, x: Tensor) -> State:
        first = (number[-1] - k if upper else k) * size
        at, some = torch.minimum(first + inside, last), first + inside <= last
        lines = row(a, at)
        corner = torch.where(some[:, None] & some, column(lines, at), same)
        found = torch.matmul(inverted(corner, level), row(b, at) - torch.matmul(lines, x))
        return (torch.where((number * size == first)[:, None], row(found, places - number * size), x),)

    def line(k: Number, x: Tensor) -> State:
        at = last - k if upper else k
        found = (row(b, at) - torch.matmul(row(a, at), x)) / column(row(a, at), at)
        return (torch.where((places == at)[:, None], found, x),)

    # Of a block, all rows are lost to what is not finite; row by row, those that depend on it.
    alone = strange(torch.where((a == 0) & (identity(a) == 1), torch.nan, a), b)
    if whole:
        x = torch.where(alone == 0, torch.matmul(inverted(a, level, size), b), torch.zeros_like(b))
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
    number = torch.floor(places / size).to(torch.int64)
    level = levels(number[-1] * size + inside)
    same = (level == 0).to(torch.float64)

    def step(k: Number, left: Tensor) -> State:
        at, some = torch.minimum(k * size + inside, last), k * size + inside <= last
        rest = column(a, at) - torch.matmul(left, row(left, at).transpose(-2, -1).clone())
        corner = columns(torch.where(some[:, None] & some, row(rest, at), same))
        below = torch.matmul(rest, inverted(corner, level).transpose(-2, -1).clone())
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


def eliminated(loop: Loop, a: Tensor, most: Any, alone: bool = False) -> tuple[Tensor, Tensor]:
    """(The columns of L and U in one matrix, as rows, those of L not divided; when each row was the pivot, (..., m)).

    Of (..., m, n), with the largest pivot of `most` columns, which are at most m and n. No row moves; one that is never
    the pivot has the step `most`. A block of columns goes column by column, those behind it all at once. alone: each
    column is eliminated in the rows before, too, so that its pivot is alone.
    """
    rows, columns = (torch.arange(a.shape[axis], device=a.device) for axis in (-2, -1))
    whole = isinstance(most, int) and most <= _BLOCK
    most = most if isinstance(most, int) else torch.ones_like(torch.arange(most)).sum()  # a size is none in a round
    width = torch.ones_like(columns).sum()
    size: Any = _BLOCK if isinstance(most, int) else torch.clamp(width, 1, _BLOCK)
    inside = columns if whole else torch.arange(size, device=a.device)
    level = levels(inside, True)

    def column_by_column(count: Any, part: Tensor, order: Tensor, at: Tensor) -> State:
        def step(k: Number, part: Tensor, order: Tensor) -> State:
            line, now = row(part, k), k if whole else at.index_select(0, k.reshape(-1))
            best = torch.where(order == most, line[..., 0, :].abs(), -1.0).argmax(-1, keepdim=True)
            order, head = torch.where(rows == best, now, order), picked(part, best)
            corner = row(head, k)
            # A column of zeros is left as it is.
            some = rows != best if alone else order == most
            factor = torch.where(some.unsqueeze(-2), line / torch.where(corner == 0, 1.0, corner), 0.0)
            return part - torch.where((at > now)[:, None], head, 0.0) * factor, order

        return rounds(loop, count, step, part, order)

    def block(number: Number, both: Tensor, order: Tensor) -> State:
        first = number * size
        at = torch.minimum(first + inside, width - 1)
        part, order = column_by_column(torch.clamp(most - first, max=size), row(both, at), order, at)
        steps, own = order.unsqueeze(-2), at[:, None]
        pivots = (steps == own).to(torch.int32).argmax(-1)
        _, factors = divided(part, order, at, (steps != own) & (own < most) if alone else None)
        lower = torch.where(level > 0, picked(factors, pivots), (level == 0).to(torch.float64))
        behind = torch.where((columns >= first + size)[:, None], picked(both, pivots), 0.0)
        both = both - torch.matmul(torch.matmul(behind, inverted(lower, level)), factors)
        return both.index_copy(-2, at, part), order

    start = a.to(torch.float64).transpose(-2, -1).clone()
    order = torch.zeros_like(rows + start[..., 0, :], dtype=torch.int64) + most
    if whole:
        both, order = column_by_column(most, start, order, columns)
    else:
        both, order = rounds(loop, torch.ceil(torch.div(most, size)).to(torch.int64), block, start, order)
    return both, order


def divided(part: Tensor, order: Tensor, at: Tensor, others: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(The rows `at` of what `eliminated` gives, with L divided by its pivots; of them L alone, or `others`.)"""
    steps, at = order.unsqueeze(-2), at[:, None]
    corner = torch.where(steps == at, part, 0.0).sum(-1, keepdim=True)
    below = steps > at if others is None else others
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
