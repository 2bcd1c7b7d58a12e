"""LU and QR, and what is computed from them, of matrices of any number of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import missing, op, while_loop
from onnxpatch.formulas import matrix_rounds as rounds
from onnxpatch.formulas import orthogonal

_RESULTS: Any = torch.return_types  # torch's stubs lack most of them

_SIZES = ((9, 12), (12, 9), (4, 4))


def _both(m: int, n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(2, m, n), torch.randn(2, m, 3)


def _unpacked(both: Tensor, order: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """(P, L, U) of an LU in float64 and the order of its rows."""
    rows, columns, least = rounds.ticks(both)
    first = torch.arange(least, device=both.device)
    lower = torch.where(rows[:, None] > columns, both, torch.zeros_like(both)).index_select(-1, first)
    lower = lower + (rows[:, None] == first).to(both.dtype)
    upper = torch.where(rows[:, None] <= columns, both, torch.zeros_like(both)).index_select(-2, first)
    return (order.unsqueeze(-2) == rows[:, None]).to(dtype), lower.to(dtype), upper.to(dtype)


def _factors(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    both, pivots = torch.linalg.lu_factor(a)
    some = *torch.linalg.lu(a), both, pivots, *torch.linalg.lu_factor_ex(a), *torch.lu(a)
    # Of more pivots than there are rows and columns the first count.
    singular = torch.linalg.lu_factor_ex(torch.where(torch.arange(a.shape[2]) == 2, 0.0, a))
    return *some, singular[2], *torch.lu_unpack(both, pivots), *torch.lu_unpack(both, torch.cat((pivots, pivots), -1))


@op("linalg.lu", "lu_factor", "lu_factor_ex", "torch._lu_with_info", "lu_unpack", "torch.lu", name="lu",
    why=missing("aten::linalg_lu", "aten::linalg_lu_factor", "aten::linalg_lu_factor_ex", "aten::lu_unpack"),
    tries=_both, sizes=_SIZES, case=_factors)  # fmt: skip
def lu_by_rows(
    original: Callable[..., Any],
    A: Tensor,
    LU_pivots: Tensor | None = None,
    *,
    pivot: bool = True,
    check_errors: bool = False,
    get_infos: bool = True,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> Any:
    """LU by rows, with the largest pivot; and its parts."""
    name = original.__name__
    if name.endswith("lu_unpack"):
        if LU_pivots is None or not (unpack_data and unpack_pivots):
            return NotImplemented
        return _RESULTS.lu_unpack(_unpacked(A.double(), rounds.order_of(while_loop, LU_pivots.long(), A), A.dtype))
    if not pivot:  # CUDA's alone
        return NotImplemented
    both, pivots, order = rounds.lu(while_loop, A)
    if name.endswith("linalg_lu"):
        return _RESULTS.linalg_lu(_unpacked(both, order, A.dtype))
    found = both.to(A.dtype), pivots.to(torch.int32)
    if name.endswith("lu_factor"):
        return _RESULTS.linalg_lu_factor(found)
    rows, columns = (torch.arange(A.shape[axis], device=A.device) for axis in (-2, -1))
    info = rounds.failed((both == 0) & (rows[:, None] == columns))
    return _RESULTS.linalg_lu_factor_ex((*found, info)) if get_infos else found


def _systems(n: int) -> tuple[Tensor, ...]:
    a = torch.randn(2, n, n)
    return (*torch.linalg.lu_factor(a), torch.randn(2, n, 3), a)


def _solved(both: Tensor, pivots: Tensor, b: Tensor, a: Tensor) -> tuple[Tensor, ...]:
    solve, turned = torch.linalg.lu_solve, b.transpose(1, 2)
    some = torch.lu_solve(b, both, pivots), solve(both, pivots, b, adjoint=True)
    return *some, solve(both, pivots, turned, left=False)


@op("linalg.lu_solve", "torch.lu_solve", "Tensor.lu_solve", name="systems-by-lu", sizes=(9, 12, 3),
    why=missing("aten::linalg_lu_solve", "aten::lu_solve"), tries=_systems, case=_solved)  # fmt: skip
def lu_solve(
    original: Callable[..., Tensor],
    first: Tensor,
    second: Tensor,
    third: Tensor,
    *,
    left: bool = True,
    adjoint: bool = False,
) -> Tensor:
    """A system of equations, from its LU."""
    both, pivots, b = (first, second, third) if "linalg" in original.__name__ else (second, third, first)
    p, lower, upper = _unpacked(both.double(), rounds.order_of(while_loop, pivots.long(), both), torch.float64)
    wide = b.to(torch.float64) if left else b.to(torch.float64).transpose(-2, -1)
    parts, turned = [(lower, False), (upper, True)], adjoint == left
    if turned:  # of the transpose: a = P L U is read from its end
        parts = [(part.transpose(-2, -1), not above) for part, above in reversed(parts)]
    else:
        wide = torch.matmul(p.transpose(-2, -1).clone(), wide)
    for part, above in parts:
        wide = rounds.substituted(while_loop, part, wide, above)
    wide = torch.matmul(p, wide) if turned else wide
    return (wide if left else wide.transpose(-2, -1)).to(b.dtype)


@op("slogdet", "logdet", name="sign-of-determinant",
    why=missing("aten::linalg_slogdet", "aten::slogdet", "aten::logdet"), tries=_systems,
    case=lambda both, pivots, b, a: (*torch.linalg.slogdet(a), torch.logdet(a @ a)), sizes=(9, 12, 3),
    reason="slogdet|logdet|det")  # fmt: skip
def slogdet(original: Callable[..., Any], A: Tensor) -> Any:
    """The sign of the determinant, and the logarithm of its size, by LU."""
    both, order = rounds.eliminated(while_loop, A, rounds.size_along(A, -1))
    chosen, places = order.argsort(-1), rounds.along(A)
    corners = (rounds.picked(both, chosen) * rounds.identity(A)).sum(-1)
    # Two rows out of order stand for one exchange, as far as its sign goes.
    swaps = ((order.unsqueeze(-1) > order.unsqueeze(-2)) & (places[:, None] < places)).to(torch.int64).sum((-2, -1))
    below = (corners < 0).to(torch.int64).sum(-1)
    sign = (1 - 2 * torch.remainder(swaps + below, 2)).to(torch.float64)
    sign = torch.where((corners == 0).to(torch.int64).sum(-1) > 0, torch.zeros_like(sign), sign)
    size = torch.log(corners.abs()).sum(-1)
    if not original.__name__.endswith("slogdet"):
        return torch.where(sign < 0, torch.full_like(size, torch.nan), size).to(A.dtype)
    return _RESULTS.linalg_slogdet((sign.to(A.dtype), size.to(A.dtype)))


# ------------------------------------------------------------------ QR
def _reflections(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    mirrors, tau = torch.geqrf(a)
    return mirrors, tau, torch.ormqr(mirrors, tau, b), torch.ormqr(mirrors, tau, b.transpose(1, 2), False, True)


@op("geqrf", "ormqr", name="reflections", why=missing("aten::geqrf", "aten::ormqr"), tries=_both,
    sizes=_SIZES, case=_reflections)  # fmt: skip
def reflections(
    original: Callable[..., Any],
    input: Tensor,
    tau: Tensor | None = None,
    other: Tensor | None = None,
    left: bool = True,
    transpose: bool = False,
) -> Any:
    """The reflections of a QR, and a product with their Q."""
    if tau is None or other is None:
        return _RESULTS.geqrf([part.to(input.dtype) for part in orthogonal.reflected(while_loop, input)])
    # Of the right side: (Qᵀ otherᵀ)ᵀ.
    x = other if left else other.transpose(-2, -1)
    found = orthogonal.turned(while_loop, input, tau, x, transpose == left).to(input.dtype)
    return found if left else found.transpose(-2, -1)


def _products(a: Tensor) -> tuple[Tensor, ...]:
    mirrors, tau = torch.geqrf(a)
    some = *torch.linalg.qr(a), *torch.linalg.qr(a, "complete"), torch.linalg.qr(a, "r").R
    return *some, torch.linalg.householder_product(mirrors, tau)


@op("qr", "householder_product", "orgqr", why=missing("aten::linalg_qr", "aten::linalg_householder_product"),
    tries=lambda m, n: torch.randn(2, m, n), sizes=((12, 9), (70, 66), (5, 4)), case=_products,
    beside=("reflections",), reason="qr|geqrf|householder|QR")  # fmt: skip
def qr_by_reflections(original: Callable[..., Any], A: Tensor, mode: Any = "reduced") -> Any:
    """Q and R; or the Q that reflections stand for."""
    if isinstance(mode, Tensor):  # householder_product(input, tau)
        return _leading(A, mode, A.shape[-1]).to(A.dtype)
    if mode in (True, False):  # torch.qr(input, some)
        mode = "reduced" if mode else "complete"
    sizes = [rounds.size_along(A, axis) for axis in (-2, -1)]
    if mode == "reduced" and all(isinstance(size, int) and size <= rounds.FEW for size in sizes):
        return _RESULTS.linalg_qr([part.to(A.dtype) for part in orthogonal.small_qr(A.double(), *sizes)])
    mirrors, factors = orthogonal.reflected(while_loop, A)
    least = factors.shape[-1]
    right = torch.triu(mirrors)
    right = right if mode == "complete" else right.narrow(-2, 0, least)
    if mode == "r":
        return _RESULTS.linalg_qr((A.new_zeros([0]), right.to(A.dtype)))
    left = _leading(mirrors, factors, A.shape[-2] if mode == "complete" else least)
    return _RESULTS.linalg_qr((left.to(A.dtype), right.to(A.dtype)))


def _leading(mirrors: Tensor, factors: Tensor, count: Any) -> Tensor:
    """The first columns of Q."""
    rows, columns = torch.arange(mirrors.shape[-2], device=mirrors.device), torch.arange(count, device=mirrors.device)
    start = (rows[:, None] == columns).to(torch.float64) + torch.zeros_like(mirrors[..., :1], dtype=torch.float64)
    return orthogonal.turned(while_loop, mirrors, factors, start)
