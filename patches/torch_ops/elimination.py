"""Systems of equations, inverses, triangles and powers of matrices of any number of rows, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import missing, op, while_loop
from onnxpatch.formulas.matrix_rounds import cholesky, failed, identity, size_along, solved, substituted
from onnxpatch.formulas.symbolic import counted

_RESULTS: Any = torch.return_types  # torch's stubs lack most of them


def _spd(n: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(2, n, n)
    return x @ x.transpose(1, 2) + torch.eye(n), torch.randn(2, n, 3)


def adjugate(a: Tensor, n: int) -> Tensor:
    """The adjugate (transposed cofactors), (..., n, n)."""
    if n == 1:
        return torch.ones_like(a)
    if n == 2:
        (p, q), (r, s) = (row.unbind(-1) for row in a.unbind(-2))
        return torch.stack((torch.stack((s, -q), -1), torch.stack((-r, p), -1)), -2)
    # The columns of the adjugate are cross products of the rows.
    first, second, third = a.unbind(-2)
    cross = lambda u, v: torch.linalg.cross(u, v, dim=-1)  # noqa: E731
    return torch.stack((cross(second, third), cross(third, first), cross(first, second)), -1)


def determinant(a: Tensor, cofactors: Tensor) -> Tensor:
    """First row times first column of the adjugate, shape (...)."""
    return (a[..., 0, :] * cofactors[..., :, 0]).sum(-1)


_SIZES = (9, 70, 3)  # beyond 64 rows there is a block more
_NO = missing("aten::linalg_inv", "aten::linalg_solve", "aten::linalg_inv_ex", "aten::linalg_solve_ex")
_REFUSED = f"{_NO.reason}|number of rows|larger than|8 rows"


def _inverses(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    both = torch.linalg.inv(a), torch.linalg.solve(a, b), torch.linalg.solve(a[0], b[0, :, 0])
    turned = torch.linalg.solve(a, b.transpose(1, 2), left=False)
    flat = torch.where(torch.arange(a.shape[2]) == 2, 0.0, a)  # has no inverse
    infos = torch.linalg.inv_ex(flat).info, torch.linalg.solve_ex(flat, b).info
    return *both, turned, *torch.linalg.inv_ex(a), *torch.linalg.solve_ex(a, b), *infos


@op("inverse", "inv", "inv_ex", "linalg.solve", "solve_ex", "torch._linalg_solve_ex", why=_NO.why,
    reason=_REFUSED, link=_NO.link, tries=_spd, sizes=_SIZES, case=_inverses)  # fmt: skip
def systems(
    original: Callable[..., Any], A: Tensor, B: Tensor | None = None, *, left: bool = True, check_errors: bool = False
) -> Any:
    """The inverse, or the solution of a system of equations."""
    name = original.__name__
    rows = size_along(A, -1)
    if B is None and not name.endswith("_ex") and isinstance(rows, int) and 1 <= rows <= 3:
        return ((cofactors := adjugate(A, rows)) / determinant(A, cofactors)[..., None, None]).to(A.dtype)
    B = identity(A).expand_as(A) if B is None else B
    vector = B.dim() == 1 or 2 <= B.dim() == A.dim() - 1
    turned = (lambda x: x) if left else (lambda x: x.transpose(-2, -1))
    found, info = solved(while_loop, turned(A), turned(B.unsqueeze(-1) if vector else B))
    found = turned(found).to(A.dtype)
    found = found.squeeze(-1) if vector else found
    kind = _RESULTS.linalg_inv_ex if "inv" in name else _RESULTS.linalg_solve_ex
    return kind((found, info)) if name.endswith("_ex") else found


# ------------------------------------------------------------------ triangles
def _triangles(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    places = torch.linalg.cholesky_ex(a - 2 * torch.eye(a.shape[1]) * (torch.arange(a.shape[1]) == 2)).info
    return torch.linalg.cholesky(a), *torch.linalg.cholesky_ex(a, upper=True), places


@op("cholesky", "cholesky_ex", why=missing("aten::linalg_cholesky", "aten::linalg_cholesky_ex"),
    reason="cholesky|Cholesky", tries=_spd, sizes=_SIZES, case=_triangles)  # fmt: skip
def cholesky_factor(original: Callable[..., Any], A: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    """The triangle L with L Lᵀ = a; NaN where there is none."""
    extended = original.__name__.endswith("_ex")
    found = cholesky(while_loop, A).to(A.dtype)
    # Where a square has no root, it and all that follows is NaN.
    info = failed(torch.isnan(found)) if extended else found
    found = found.transpose(-2, -1) if upper else found
    return _RESULTS.linalg_cholesky_ex((found, info)) if extended else found


@op("cholesky_inverse", "cholesky_solve", name="cholesky-systems",
    why=missing("aten::cholesky_inverse", "aten::cholesky_solve"), reason="cholesky|Cholesky", tries=_spd,
    sizes=_SIZES,
    case=lambda a, b: (torch.cholesky_inverse(a), torch.cholesky_solve(b, a), b.cholesky_solve(a, upper=True)),
    )  # fmt: skip
def cholesky_systems(input: Tensor, input2: Tensor | None = None, upper: bool = False) -> Tensor:
    """The inverse of, or a system with, the matrix whose triangle is given."""
    factor, right = (input, identity(input)) if input2 is None else (input2, input)
    left = torch.triu(factor).transpose(-2, -1) if upper else torch.tril(factor)
    half = substituted(while_loop, left, right, upper=False)
    return substituted(while_loop, left.transpose(-2, -1), half, upper=True).to(input.dtype)


def _of_triangles(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    solve = torch.linalg.solve_triangular
    some = solve(a, b, upper=False), solve(a, b.transpose(1, 2), upper=True, left=False)
    older = torch.triangular_solve(b, a, unitriangular=True, transpose=True)
    # What is not finite reaches the rows after it alone.
    lost = solve(a, torch.where(torch.arange(a.shape[1])[:, None] == 2, torch.nan, b), upper=False)
    return lost, *some, solve(a, b, upper=True, unitriangular=True), *older


@op("solve_triangular", "triangular_solve", reason="triangular",
    why=missing("aten::linalg_solve_triangular", "aten::triangular_solve"), case=_of_triangles, sizes=_SIZES,
    tries=lambda n: (torch.randn(2, n, n) / n + torch.eye(n), torch.randn(2, n, 3)))  # fmt: skip
def triangles(
    original: Callable[..., Any],
    input: Tensor,
    other: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
    *,
    left: bool = True,
) -> Any:
    """A system with a triangle."""
    older = "solve_triangular" not in original.__name__
    a, b = (other, input) if older else (input, other)
    wide = (torch.triu(a) if upper else torch.tril(a)).to(torch.float64)
    wide = torch.where(identity(a) == 1, identity(a), wide) if unitriangular else wide
    turned = transpose != (not left)
    wide = wide.transpose(-2, -1) if turned else wide
    found = substituted(while_loop, wide, b if left else b.transpose(-2, -1), upper != turned).to(b.dtype)
    found = found if left else found.transpose(-2, -1)
    return _RESULTS.triangular_solve((found, a.clone())) if older else found


# ------------------------------------------------------------------ tensors as matrices
def _tensor(n: int) -> Tensor:
    return (torch.randn(2 * n, 2 * n) + 3 * torch.eye(2 * n)).reshape(n, 2, 2 * n)


@op("linalg.tensorinv", "linalg.tensorsolve", name="systems-of-tensors",
    why=missing("aten::linalg_tensorinv", "aten::linalg_tensorsolve", "aten::linalg_inv_ex"), tries=_tensor,
    sizes=(5, 6, 2), case=lambda a: (torch.linalg.tensorinv(a, 2), torch.linalg.tensorsolve(a, a[:, :, 0])),
    beside=("inverse",))  # fmt: skip
def tensor_systems(
    original: Callable[..., Tensor], A: Tensor, B: Any = None, dims: Any = None, *, ind: int = 2
) -> Tensor:
    """The inverse, or the solution, of the matrix that the first axes make with the others."""
    if original.__name__.endswith("inv"):
        ind = B if isinstance(B, int) else ind
        rows = A.flatten(0, ind - 1)
        found = torch.linalg.inv(rows.reshape(rows.shape[0], -1))
        return found.reshape([*A.shape[ind:], *A.shape[:ind]])
    if dims is not None:
        last = [axis % A.dim() for axis in dims]
        A = A.permute([*(axis for axis in range(A.dim()) if axis not in last), *last])
    right = B.reshape(-1)
    matrix = A.flatten(B.dim()).flatten(0, B.dim() - 1)
    return torch.linalg.solve(matrix, right).reshape(A.shape[B.dim() :])


# ------------------------------------------------------------------ least squares
def _fitted(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    fit = torch.linalg.lstsq
    several = fit(torch.stack((a, a * 2)), torch.stack((b, b + 1)), driver="gelsy")
    return fit(a, b[:, 0]).solution, *fit(a, b, driver="gels")[:2], *fit(a, b, driver="gelsd")[2:], *several[::2]


@op("linalg.lstsq", why=missing("aten::linalg_lstsq"),
    tries=lambda m, n: (torch.randn(m, n), torch.randn(m, 3)), sizes=((6, 4), (4, 7), (5, 5)), case=_fitted,
    beside=("pseudoinverse", "spectra-of-any-size"))  # fmt: skip
def lstsq(A: Tensor, B: Tensor, rcond: Any = None, *, driver: str | None = None) -> Any:
    """The shortest solution, by the pseudoinverse. Residuals as eager has them: of more rows than columns."""
    if A.dim() != 2 and driver not in (None, "gelsy"):
        return NotImplemented
    right = B.unsqueeze(-1) if B.dim() < A.dim() else B
    found = torch.matmul(torch.linalg.pinv(A, rtol=rcond), right)
    sizes = [counted(size, A) for size in (*A.shape[-2:], right.shape[-1])]
    none = A.new_zeros([0])
    # gels takes the rank for full. The default, gelsy, gives no residuals.
    rank = none.to(torch.int64) if driver == "gels" else torch.linalg.matrix_rank(A, rtol=rcond)
    residuals = none
    if driver not in (None, "gelsy"):
        above = sizes[0] > sizes[1]
        count: Any = sizes[2] * (above if driver == "gels" else above & (rank == sizes[1])).to(torch.int64)
        apart = torch.matmul(A, found) - right
        residuals = (apart * apart).sum(0).index_select(0, torch.arange(count, device=A.device))
    values = torch.linalg.svdvals(A) if driver in ("gelsd", "gelss") else none
    found = found.squeeze(-1) if B.dim() < A.dim() else found
    return _RESULTS.linalg_lstsq((found, residuals, rank, values))


@op("matrix_power", name="inverse-powers", why=missing("aten::linalg_inv_ex", exporters=("dynamo",)),
    tries=lambda n: torch.randn(2, n, n) + 5 * torch.eye(n), case=lambda x: torch.linalg.matrix_power(x, -2),
    unchanged=lambda x: torch.linalg.matrix_power(x, 2), beside=("inverse",))  # fmt: skip
def inverse_power(original: Callable[..., Tensor], input: Tensor, n: int) -> Tensor:
    """A power of the inverse."""
    return original(torch.linalg.inv(input), -n) if isinstance(n, int) and n < 0 else NotImplemented
