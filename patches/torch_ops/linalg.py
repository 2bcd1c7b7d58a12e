"""Systems of equations, inverses and factorizations of small matrices, unrolled in the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import RefusedError, exporting, missing, op, running_model, while_loop
from onnxpatch.formulas import matrices as unrolled
from onnxpatch.formulas.matrices import few, solve
from onnxpatch.formulas.matrix_rounds import singular
from onnxpatch.formulas.symbolic import constant, fixed_size, traced_from, unrecorded

_RESULTS: Any = torch.return_types  # torch's stubs lack most of them


def _rows(a: Tensor, axis: int = -1) -> int:
    """The number of rows of what is `few`."""
    return fixed_size(a, axis) or 0


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


def small_inverse(a: Tensor) -> Tensor:
    """The inverse of (..., n, n)."""
    rows = _rows(a)
    # Beyond 3 rows cofactors take more nodes than elimination does.
    if rows > 3:
        return eliminated(a, torch.eye(rows, dtype=a.dtype, device=a.device).expand_as(a), rows)
    cofactors = adjugate(a, rows)
    return cofactors / determinant(a, cofactors)[..., None, None]


def eliminated(a: Tensor, b: Tensor, rows: int) -> Tensor:
    """x with a x = b, computed in float64."""
    wide = torch.broadcast_tensors(a[..., :1, :1].double(), b[..., :1, :1].double())[0].shape[:-2]
    left, right = (one.double().expand([*wide, *one.shape[-2:]]) for one in (a, b))
    return solve(left, right, rows).to(a.dtype)


def _geometry(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Inverts camera matrices and solves a small system."""
    a = a + 3 * torch.eye(3)
    larger = torch.cat((a, b), -1) @ torch.cat((a, b), -1).transpose(-2, -1)
    five = torch.nn.functional.pad(larger, (1, 1, 1, 1)) + torch.eye(5).flip(0)
    wide = torch.linalg.inv(five), torch.linalg.solve(five, five[..., :2])
    three = torch.inverse(a), torch.linalg.solve(a, b), torch.linalg.solve(a, a)
    return *three, torch.linalg.inv(a[..., :2, :2]), *wide


@op(
    "inverse",
    "inv",
    "linalg.solve",
    "inv_ex",
    why="Exporting the operator 'aten::linalg_inv' / 'aten::linalg_solve' to ONNX is not supported",
    reason="aten.linalg_inv|aten::linalg_inv",
    link="https://github.com/pytorch/pytorch/issues/107948",
    tries=lambda b, n: (torch.randn(b, n, 3, 3), torch.randn(b, n, 3, 2)),
    case=_geometry,
)
def invert(
    original: Callable[..., Tensor], a: Tensor, B: Any = None, *, left: bool = True, check_errors: bool = False
) -> object:
    """inv(a), or solve(a, B) = inv(a) B: the adjugate over the determinant, or elimination."""
    name = original.__name__
    if not few(a) or not left:
        return NotImplemented  # a loop over the rows
    if "solve" in name:
        vector = B.dim() == a.dim() - 1
        solved = torch.matmul(small_inverse(a), B.unsqueeze(-1) if vector else B)
        return solved.squeeze(-1) if vector else solved
    found = small_inverse(a)
    return _RESULTS.linalg_inv_ex((found, singular(while_loop, a))) if name.endswith("_ex") else found


_LINK = "https://github.com/pytorch/pytorch/issues/107948"


def _spd(batch: int, n: int) -> Tensor:
    x = torch.randn(batch, n, n)
    return x @ x.transpose(1, 2) + torch.eye(n)


def _triangles(x: Tensor) -> tuple[Tensor, ...]:
    left = torch.linalg.cholesky(x)
    solved = torch.linalg.solve_triangular(left, x[..., :2], upper=False)
    flipped = torch.linalg.solve_triangular(left.transpose(-2, -1), solved, upper=True)
    older = torch.cholesky(x) if torch.__version__ < "2.15" else left  # later versions refuse it in eager
    return left, torch.linalg.cholesky(x, upper=True), solved, flipped, older


@op(
    "cholesky",
    why=missing("aten::linalg_cholesky"),
    link=_LINK,
    tries=lambda b: _spd(b, 5),
    sizes=(2, 3, 1),
    case=_triangles,
    # What the factor is used for is that patch's.
    beside=("solve-triangular",),
)
def small_cholesky(A: Tensor, upper: bool = False) -> Tensor:
    """torch.linalg.cholesky of (..., n, n), column by column."""
    if not few(A):
        return NotImplemented
    found = unrolled.cholesky(A.double(), _rows(A)).to(A.dtype)
    return found.transpose(-2, -1) if upper else found


def _systems(x: Tensor) -> tuple[Tensor, ...]:
    lower, upper = torch.tril(x), torch.triu(x)
    solve = torch.linalg.solve_triangular
    turned = solve(lower, x[:, :2], upper=False, left=False), solve(upper, x, upper=True, left=False)
    return solve(lower, x[..., :3], upper=False), solve(upper, x, upper=True, unitriangular=True), *turned


@op(
    "solve_triangular",
    why=missing("aten::linalg_solve_triangular"),
    link=_LINK,
    tries=lambda b: _spd(b, 4),
    sizes=(2, 3, 1),
    case=_systems,
)
def solve_small_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """torch.linalg.solve_triangular for (..., n, n), (..., n, k), row by row."""
    if not few(A):
        return NotImplemented
    if not left:  # x A = b is A^T x^T = b^T
        A, B, upper = A.transpose(-2, -1), B.transpose(-2, -1), not upper
    rows = _rows(A)
    found = unrolled.solve_triangular(A.double(), B.double(), rows, upper, unitriangular).to(A.dtype)
    return found if left else found.transpose(-2, -1)


@op(
    "qr",
    why=missing("aten::linalg_qr"),
    link=_LINK,
    tries=lambda b: torch.randn(b, 4, 4),
    sizes=(2, 3, 1),
    case=lambda x: (*torch.linalg.qr(x), *torch.linalg.qr(x[..., :3]), *torch.linalg.qr(x[..., :2, :], "complete")),
)
def small_qr(A: Tensor, mode: str = "reduced") -> Any:
    """torch.linalg.qr of (..., m, n) by Householder reflections, with LAPACK's signs."""
    if not few(A, axes=(-2, -1)) or mode == "r":
        return NotImplemented
    rows, columns = (_rows(A, axis) for axis in (-2, -1))
    # Without more rows than columns, Q is square in both.
    if mode != "reduced" and not (mode == "complete" and rows <= columns):
        raise RefusedError(f"torch.linalg.qr with mode={mode!r} has no ONNX form here: use the reduced one")
    return _RESULTS.linalg_qr([part.to(A.dtype) for part in unrolled.qr(A.double(), columns, rows)])


class _Orthogonal(torch.nn.Module):
    """A square weight, which is a matrix exponential, and a tall one, which is a product of reflections."""

    def __init__(self) -> None:
        super().__init__()
        orthogonal = torch.nn.utils.parametrizations.orthogonal
        self.square, self.tall = orthogonal(torch.nn.Linear(6, 6)), orthogonal(torch.nn.Linear(6, 9))
        for name, stored in self.named_parameters():
            torch.nn.init.normal_(stored) if "square" in name else None

    def forward(self, x: Tensor) -> Tensor:
        return self.tall(torch.tanh(self.square(x)))


@op(
    "torch.matrix_exp",
    "linalg.matrix_exp",
    "householder_product",
    name="orthogonal-weights",
    why="Exporting the operator 'aten::linalg_matrix_exp', 'aten::linalg_householder_product' to ONNX is not "
    "supported; No decompositions registered for aten.linalg_matrix_exp",
    reason="matrix_exp|householder_product|aten::mH",
    link="https://github.com/pytorch/pytorch/issues/107948",
    tries=lambda batch: torch.randn(batch, 6),
    sizes=(3, 5, 1),
    case=_Orthogonal,
    unchanged=lambda x: torch.exp(x),
)
def stored_weight(original: Callable[..., Tensor], input: Tensor, tau: Tensor | None = None) -> Tensor:
    """The result as a constant, if it depends on weights only."""
    tensors = [input] if tau is None else [input, tau]
    running = running_model()
    if running is None or running.model is None:
        return NotImplemented
    if exporting() == "trace":
        stored = [*running.model.parameters(), *running.model.buffers()]
        if not all(traced_from(tensor, stored) for tensor in tensors):
            return NotImplemented
    known = [constant(tensor, running.model, running.tensors) for tensor in tensors]
    if any(tensor is None for tensor in known):
        return NotImplemented
    made: Tensor = unrecorded(lambda: original(*known))
    return made
