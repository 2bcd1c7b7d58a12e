"""Factorizations of small matrices, unrolled: n is static, and the number of nodes grows with it.

Matrices are (..., n, n), or (..., m, n) for `qr`. Everything is computed in float64, since the formulas that unroll
well lose more digits than LAPACK's. No product has a transposed operand: onnxruntime up to 1.23 makes one node of the
two, for which it has no kernel in float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from onnxpatch.formulas.symbolic import fixed_size, symbolic

_SWEEPS = 5  # Jacobi converges quadratically: float64 needs no more


def few(a: Tensor, most: int = 8, axes: tuple[int, ...] = (-1,)) -> bool:
    """Whether no input changes the number of rows and it is so small that unrolling is best."""
    if any(symbolic(a.shape[axis]) for axis in axes):
        return False
    sizes = [fixed_size(a, axis) for axis in axes]
    return all(size is not None and size <= most for size in sizes)


def cholesky(a: Tensor, n: int) -> Tensor:
    """The lower triangle L with L Lᵀ = a, column by column. NaN if `a` is not positive definite."""
    left = torch.zeros_like(a)
    for j in range(n):
        column = a[..., :, j] - (left * left[..., j : j + 1, :]).sum(-1)
        below = torch.arange(n, device=a.device) >= j
        column = torch.where(below, column / torch.sqrt(column[..., j : j + 1]), torch.zeros_like(column))
        left = _with_column(left, column, j, n)
    return left


def solve_triangular(a: Tensor, b: Tensor, n: int, upper: bool, unit: bool) -> Tensor:
    """x with a x = b, row by row. b: (..., n, k)."""
    rows: dict[int, Tensor] = {}
    for i in reversed(range(n)) if upper else range(n):
        rest = b[..., i, :]
        for j, known in rows.items():
            rest = rest - a[..., i, j : j + 1] * known
        rows[i] = rest if unit else rest / a[..., i, i : i + 1]
    return torch.stack([rows[i] for i in range(n)], -2)


def solve(a: Tensor, b: Tensor, n: int) -> Tensor:
    """x with a x = b, by Gaussian elimination with partial pivoting. b: (..., n, k)."""
    both, places = torch.cat((a, b), -1), torch.arange(n, device=a.device)
    for j in range(n):
        size = torch.where(places >= j, both[..., :, j].abs(), -torch.ones_like(both[..., :, j]))
        pivot = size.argmax(-1, keepdim=True)
        # Swap row j and the pivot's row.
        order = torch.where(places == j, pivot, torch.where(places == pivot, torch.full_like(pivot, j), places))
        both = torch.gather(both, -2, order.unsqueeze(-1).expand_as(both))
        row = both[..., j : j + 1, :] / both[..., j : j + 1, j : j + 1]
        others = both - both[..., :, j : j + 1] * row
        both = torch.where((places == j)[:, None], row, others)
    return both[..., :, n:]


def qr(a: Tensor, n: int, rows: int) -> tuple[Tensor, Tensor]:
    """(Q, R) by Householder reflections, with LAPACK's signs: Q (..., rows, k), R (..., k, n), k = min(rows, n)."""
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


def smaller_square(a: Tensor, rows: int, columns: int) -> Tensor:
    """AᵀA or A Aᵀ, whichever is smaller."""
    if columns <= rows:
        return (a.unsqueeze(-1) * a.unsqueeze(-2)).sum(-3)
    return (a.unsqueeze(-2) * a.unsqueeze(-3)).sum(-1)


def eigvalsh(a: Tensor, n: int) -> Tensor:
    """The eigenvalues of symmetric matrices in ascending order, (..., n), by Jacobi rotations."""
    eye = _places(a, n, {(i, i): 1 for i in range(n)})
    # One rotation makes a 2 x 2 matrix diagonal.
    for _ in range(_SWEEPS if n > 2 else 1):
        for p in range(n - 1):
            for q in range(p + 1, n):
                c, s = _rotation(a[..., p, p], a[..., q, q], a[..., p, q])
                on, beside = _places(a, n, {(p, p): 1, (q, q): 1}), _places(a, n, {(p, q): 1, (q, p): -1})
                both, slanted = eye + (c - 1)[..., None, None] * on, s[..., None, None] * beside
                # With -s the same rotation back, its transpose.
                a = torch.matmul(both - slanted, torch.matmul(a, both + slanted))
    found = (a * eye).sum(-1)
    return found.topk(n, dim=-1, largest=False, sorted=True)[0]


def _places(like: Tensor, n: int, entries: dict[tuple[int, int], float]) -> Tensor:
    """A constant (n, n) with these entries and zeros."""
    rows = [[float(entries.get((i, j), 0)) for j in range(n)] for i in range(n)]
    return torch.tensor(rows, dtype=like.dtype, device=like.device)


def _rotation(first: Tensor, second: Tensor, beside: Tensor) -> tuple[Tensor, Tensor]:
    """(cosine, sine) of the Jacobi rotation that makes the off-diagonal entry `beside` 0."""
    none = beside == 0
    slope = (second - first) / (2 * torch.where(none, torch.ones_like(beside), beside))
    # Not torch.sign: equal diagonal entries have slope 0, and must be turned by 45 degrees.
    sign = torch.where(slope < 0, -torch.ones_like(slope), torch.ones_like(slope))
    tangent = sign / (slope.abs() + torch.sqrt(slope * slope + 1))
    tangent = torch.where(none, torch.zeros_like(tangent), tangent)
    cosine = 1 / torch.sqrt(tangent * tangent + 1)
    return cosine, tangent * cosine


def _with_column(a: Tensor, column: Tensor, j: int, n: int) -> Tensor:
    return torch.where(torch.arange(n, device=a.device) == j, column.unsqueeze(-1), a)
