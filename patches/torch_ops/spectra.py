"""Eigenvalues and singular values of matrices of any number of rows, what follows from them; matrix exponentials."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import missing, op, while_loop
from onnxpatch.formulas import matrix_rounds as rounds
from onnxpatch.formulas import orthogonal
from onnxpatch.formulas.symbolic import counted

_SIZES = ((6, 9), (8, 5), (3, 3))


def _wide(m: int, n: int) -> Tensor:
    return torch.randn(2, m, n)


def _gram(a: Tensor) -> Tensor:
    """aᵀ a, in float64."""
    wide = a.to(torch.float64)
    return torch.matmul(wide.transpose(-2, -1).clone(), wide)


def _singular(a: Tensor, double: bool | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """(The singular values, in no order, among zeros; the right vectors, and the left ones times the values: columns.)

    double: whether values of 1e-8 of the largest count; for matrices in float64.
    """
    wide = a.to(torch.float64)
    if not (a.dtype == torch.float64 if double is None else double):
        values, right = orthogonal.eigh(while_loop, _gram(a))
        return torch.sqrt(values.clamp(min=0)), right, torch.matmul(wide, right)
    # A square has lost them. The eigenvalues of [[0, a], [aT, 0]] are the singular values with both signs.
    rows, columns = a.shape[-2], a.shape[-1]
    above = torch.cat((wide.new_zeros([*a.shape[:-1], rows]), wide), -1)
    turned = wide.transpose(-2, -1)
    below = torch.cat((turned, wide.new_zeros([*turned.shape[:-1], columns])), -1)
    values, vectors = orthogonal.eigh(while_loop, torch.cat((above, below), -2))
    values, vectors = values.clamp(min=0), vectors * math.sqrt(2)
    left = vectors.narrow(-2, 0, rows)
    return values, vectors.narrow(-2, rows, columns), left * values.unsqueeze(-2)


def _sorted(x: Tensor, count: Any, largest: bool) -> Tensor:
    return x.topk(count, dim=-1, largest=largest, sorted=True)[0]


def _least(a: Tensor) -> Tensor:
    rows, columns = (counted(a.shape[axis], a) for axis in (-2, -1))
    return torch.minimum(rows, columns)


def _symmetric(a: Tensor, upper: bool = False) -> Tensor:
    """One triangle, and its mirror image."""
    a = a.to(torch.float64).transpose(-2, -1) if upper else a.to(torch.float64)
    return torch.tril(a) + torch.tril(a, -1).transpose(-2, -1)


def _values(a: Tensor) -> tuple[Tensor, ...]:
    square = a @ a.transpose(1, 2)
    return torch.linalg.svdvals(a), torch.linalg.eigvalsh(square), torch.linalg.eigvalsh(square, "U")


@op("eigvalsh", "svdvals", name="spectra-of-any-size",
    why=missing("aten::linalg_eigvalsh", "aten::linalg_svdvals"),
    reason="eigvalsh|svdvals|linalg_svd|linalg_eigh|spectrum", tries=_wide, sizes=_SIZES, case=_values)  # fmt: skip
def spectra(original: Callable[..., Tensor], A: Tensor, UPLO: str = "L", *, driver: str | None = None) -> Tensor:
    """Eigenvalues of symmetric matrices in ascending order; singular values in descending order."""
    if "svd" in original.__name__:
        return _sorted(_singular(A)[0], _least(A), True).to(A.dtype)
    values = orthogonal.eigh(while_loop, _symmetric(A, UPLO == "U"))[0]
    return _sorted(values, A.shape[-1], False).to(A.dtype)


def _norms(a: Tensor) -> tuple[Tensor, ...]:
    square = a @ a.transpose(1, 2) + torch.eye(a.shape[1])
    norm = torch.linalg.matrix_norm
    return (
        norm(a, "nuc"),
        norm(a, 2),
        norm(a, -2, keepdim=True),
        torch.linalg.cond(square),
        torch.linalg.cond(square, "fro"),
    )


@op("linalg.matrix_norm", "linalg.cond", name="norms-by-singular-values", beside=("inverse",),
    why="Unsupported: ONNX export of operator linalg.matrix_norm, ord==nuc; linalg_cond is not supported",
    reason="matrix_norm|linalg_svd|linalg_cond|linalg_norm|numel", tries=_wide, sizes=_SIZES, case=_norms)  # fmt: skip
def norms(
    original: Callable[..., Tensor],
    A: Tensor,
    ord: Any = None,
    dim: Any = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The nuclear and spectral norms of a matrix, and how much its inverse enlarges errors."""
    if original.__name__.endswith("cond"):
        if ord not in (None, 2, -2):
            return torch.linalg.matrix_norm(A, ord) * torch.linalg.matrix_norm(torch.linalg.inv(A), ord)
        values = _sorted(_singular(A)[0], _least(A), True)
        share = values[..., 0] / values[..., -1]
        return (1 / share if ord == -2 else share).to(A.dtype)
    if ord not in ("nuc", 2, -2):
        return NotImplemented
    x = A if dtype is None else A.to(dtype)
    axes = tuple(axis % x.dim() for axis in dim)
    last = x.movedim(axes, (x.dim() - 2, x.dim() - 1))
    values = _sorted(_singular(last)[0], _least(last), True)
    found = values.sum(-1) if ord == "nuc" else values[..., 0] if ord == 2 else values[..., -1]
    for axis in sorted(axes) if keepdim else ():
        found = found.unsqueeze(axis)
    return found.to(x.dtype)


@op("norm", "linalg.norm", name="nuclear-norm", why="ONNX export of operator linalg.matrix_norm, ord==nuc",
    reason="nuc|linalg_svd", tries=_wide, sizes=_SIZES, beside=("norms-by-singular-values",),
    case=lambda x: (torch.norm(x[0], "nuc"), torch.linalg.norm(x[0], "nuc"), torch.norm(x, "nuc", dim=(1, 2))),
    )  # fmt: skip
def nuclear_norm(input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum of the singular values."""
    if p != "nuc":
        return NotImplemented
    return torch.linalg.matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim, dtype=dtype)


def _pseudo(a: Tensor) -> tuple[Tensor, ...]:
    flat = torch.cat((a, a[..., :1] * 2), -1)  # of lower rank
    symmetric = flat @ flat.transpose(1, 2)
    inverses = torch.linalg.pinv(flat), torch.pinverse(a[0]), torch.linalg.pinv(a, rtol=0.4)
    ranks = torch.linalg.matrix_rank(flat), torch.linalg.matrix_rank(a, atol=0.5, rtol=0.0)
    return *inverses, *ranks, torch.linalg.matrix_rank(symmetric * 0.1, hermitian=True, rtol=0.01)


@op("pinv", "matrix_rank", "pinverse", name="pseudoinverse",
    why=missing("aten::linalg_pinv", "aten::pinverse", "aten::linalg_matrix_rank"),
    reason="pinv|matrix_rank|linalg_svd|linalg_eigh", tries=_wide, sizes=_SIZES, case=_pseudo)  # fmt: skip
def pseudoinverse(
    original: Callable[..., Tensor],
    input: Tensor,
    rcond: Any = None,
    hermitian: bool = False,
    *,
    atol: Any = None,
    rtol: Any = None,
    tol: Any = None,
) -> Tensor:
    """The inverse of what is above the tolerance; how many singular values are."""
    wide = _symmetric(input) if hermitian else input.to(torch.float64)
    values, right, left = _singular(wide, input.dtype == torch.float64)
    largest = values.amax(-1, keepdim=True)
    least = 0.0 if atol is None and tol is None else atol if tol is None else tol
    share = rcond if rtol is None else rtol
    if share is None:
        sizes = [counted(input.shape[axis], input) for axis in (-2, -1)]
        share = torch.maximum(*sizes).to(torch.float64) * torch.finfo(input.dtype).eps
        share = share * (torch.as_tensor(least) <= 0).to(torch.float64)
    bounds = [torch.as_tensor(one, dtype=torch.float64) for one in (least, share)]
    least, share = (one.unsqueeze(-1) if one.dim() else one for one in bounds)
    counts = values > torch.maximum(least + torch.zeros_like(largest), share * largest)
    if original.__name__.endswith("rank"):
        return counts.to(torch.int64).sum(-1)
    squares = torch.where(
        counts, 1 / torch.where(counts, values * values, torch.ones_like(values)), torch.zeros_like(values)
    )
    return torch.matmul(right * squares.unsqueeze(-2), left.transpose(-2, -1).clone()).to(input.dtype)


# ------------------------------------------------------------------ exponential
_TERMS = 18  # of Taylor's series, of a matrix whose norm is at most 1
_MOST_HALVED = 1024.0


@op("matrix_exp", name="matrix-exponential", why=missing("aten::linalg_matrix_exp", "aten::matrix_exp"),
    sizes=(5, 9, 2), tries=lambda n: torch.randn(2, n, n) * torch.tensor([0.1, 4.0])[:, None, None],
    case=lambda x: (torch.linalg.matrix_exp(x), x.matrix_exp()))  # fmt: skip
def matrix_exp(A: Tensor) -> Tensor:
    """The series of the matrix halved until its norm is at most 1, squared as often."""
    wide = A.to(torch.float64)
    norm = wide.abs().sum(-2, keepdim=True).amax(-1, keepdim=True)
    # At most as often as the largest number can be: of an infinity the rounds would not end.
    halved = torch.ceil(torch.log(norm.clamp(min=1.0)) / math.log(2)).clamp(max=_MOST_HALVED)
    x, one = wide * torch.pow(2.0, -halved), rounds.identity(A) + torch.zeros_like(wide)
    found = one
    for k in range(_TERMS, 0, -1):
        found = one + torch.matmul(x, found) / k

    @while_loop(lambda left, square: (left > 0).any())
    def run(left: Tensor, square: Tensor) -> tuple[Tensor, ...]:
        return left - 1, torch.where(left > 0, torch.matmul(square, square), square)

    return run(halved, found)[1].to(A.dtype)
