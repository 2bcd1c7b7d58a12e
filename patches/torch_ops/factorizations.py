"""Cholesky, triangular systems, QR, singular values and eigenvalues of small matrices, unrolled in the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from onnxpatch import Proof, RefusedError, patch
from onnxpatch.formulas import factorizations as unrolled
from onnxpatch.formulas.symbolic import fixed_size

_ROWS = 8  # limit for elimination, row by row
_ROTATED = 4  # limit for Jacobi rotations: five sweeps over 4 rows are 30 rotations
_WHY = "Exporting the operator 'aten::{0}' to ONNX is not supported; No ONNX function found for aten.{0}"
_LINK = "https://github.com/pytorch/pytorch/issues/107948"


def _rows(x: Tensor, axis: int, most: int, name: str) -> int:
    """A static size. Raises RefusedError for a dynamic one, and for one larger than `most`."""
    size = fixed_size(x, axis)
    if size is None or size > most:
        raise RefusedError(
            f"{name} of {'a dynamic number of' if size is None else size} rows has no ONNX form: up to {most} rows are "
            "unrolled in the graph; compute it outside of the model"
        )
    return size


def _spd(batch: int, n: int) -> Tensor:
    x = torch.randn(batch, n, n)
    return x @ x.transpose(1, 2) + torch.eye(n)


class _Triangles(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        left = torch.linalg.cholesky(x)
        solved = torch.linalg.solve_triangular(left, x[..., :2], upper=False)
        flipped = torch.linalg.solve_triangular(left.transpose(-2, -1), solved, upper=True)
        older = torch.cholesky(x) if torch.__version__ < "2.15" else left  # later versions refuse it in eager
        return left, torch.linalg.cholesky(x, upper=True), solved, flipped, older


@patch(
    "torch.linalg.cholesky",
    "torch.cholesky",
    "torch.Tensor.cholesky",
    name="cholesky",
    why=_WHY.format("linalg_cholesky"),
    link=_LINK,
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Triangles,
        lambda: [(_spd(b, 5),) for b in (2, 3, 1)],
        ({0: "b"},),
        fails=("dynamo", "trace"),
        reason="linalg_cholesky",
        # What the factor is used for is that patch's.
        beside=("solve-triangular",),
    ),
)
def cholesky(original: Callable[..., Tensor], A: Tensor, upper: bool = False) -> Tensor:
    """torch.linalg.cholesky of (..., n, n), column by column."""
    found = unrolled.cholesky(A.double(), _rows(A, -1, _ROWS, "Cholesky's factor")).to(A.dtype)
    return found.transpose(-2, -1) if upper else found


class _Systems(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        lower, upper = torch.tril(x), torch.triu(x)
        solve = torch.linalg.solve_triangular
        turned = solve(lower, x[:, :2], upper=False, left=False), solve(upper, x, upper=True, left=False)
        return solve(lower, x[..., :3], upper=False), solve(upper, x, upper=True, unitriangular=True), *turned


@patch(
    "torch.linalg.solve_triangular",
    name="solve-triangular",
    why=_WHY.format("linalg_solve_triangular"),
    link=_LINK,
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Systems,
        lambda: [(_spd(b, 4),) for b in (2, 3, 1)],
        ({0: "b"},),
        fails=("dynamo", "trace"),
        reason="linalg_solve_triangular",
    ),
)
def solve_triangular(
    original: Callable[..., Tensor],
    A: Tensor,
    B: Tensor,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Tensor:
    """torch.linalg.solve_triangular for (..., n, n), (..., n, k), row by row."""
    if not left:  # x A = b is A^T x^T = b^T
        A, B, upper = A.transpose(-2, -1), B.transpose(-2, -1), not upper
    rows = _rows(A, -1, _ROWS, "a triangular system")
    found = unrolled.solve_triangular(A.double(), B.double(), rows, upper, unitriangular).to(A.dtype)
    return found if left else found.transpose(-2, -1)


class Factors(NamedTuple):
    """What torch.linalg.qr returns."""

    Q: Tensor
    R: Tensor


class _Orthogonal(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (*torch.linalg.qr(x), *torch.linalg.qr(x[..., :3]), *torch.linalg.qr(x[..., :2, :], "complete"))


@patch(
    "torch.linalg.qr",
    "torch.qr",
    "torch.Tensor.qr",
    name="qr",
    why=_WHY.format("linalg_qr"),
    link=_LINK,
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Orthogonal, lambda: [(torch.randn(b, 4, 4),) for b in (2, 3, 1)], ({0: "b"},),
        fails=("dynamo", "trace"), reason="linalg_qr",
    ),
)  # fmt: skip
def qr(original: Callable[..., Tensor], A: Tensor, mode: str = "reduced") -> Factors:
    """torch.linalg.qr of (..., m, n) by Householder reflections, with LAPACK's signs."""
    rows, columns = (_rows(A, axis, _ROWS, "a QR factorization") for axis in (-2, -1))
    # Without more rows than columns, Q is square in both.
    if mode != "reduced" and not (mode == "complete" and rows <= columns):
        raise RefusedError(f"torch.linalg.qr with mode={mode!r} has no ONNX form here: use the reduced one")
    return Factors(*(part.to(A.dtype) for part in unrolled.qr(A.double(), columns, rows)))


class _Spectrum(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        both = x + x.transpose(1, 2)
        return torch.linalg.eigvalsh(both), torch.linalg.svdvals(x), torch.linalg.eigvalsh(both[:, :2, :2])


@patch(
    "torch.linalg.eigvalsh",
    "torch.linalg.svdvals",
    name="spectra",
    why=_WHY.format("linalg_eigvalsh"),
    link=_LINK,
    exporters=("trace",),
    proof=Proof(
        _Spectrum, lambda: [(torch.randn(b, 3, 3),) for b in (2, 3, 1)], ({0: "b"},),
        fails=("trace",), reason="linalg_eigvalsh",
    ),
)  # fmt: skip
def spectrum(original: Callable[..., Tensor], A: Tensor, *ignored: object, **named: object) -> Tensor:
    """Eigenvalues by Jacobi rotations; singular values as roots of the eigenvalues of AᵀA, computed in float64.

    Not under dynamo, where so many nodes take minutes.
    """
    values = "svd" in original.__name__
    rows = [_rows(A, axis, _ROTATED, "a spectrum") for axis in (-2, -1)]
    wide = A.double()
    if not values:
        lower = torch.tril(wide)  # torch reads only one triangle
        return unrolled.eigvalsh(lower + torch.tril(wide, -1).transpose(-2, -1), rows[0]).to(A.dtype)
    # Rounding may make the smallest eigenvalue negative; its root would be NaN.
    found = unrolled.eigvalsh(unrolled.smaller_square(wide, *rows), min(rows)).clamp(min=0)
    return torch.sqrt(found).flip(-1).to(A.dtype)
