"""torch.linalg.inv and solve of small matrices: closed forms up to 3 rows, elimination up to 8. ONNX has only Det."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from onnxpatch import Proof, RefusedError, patch
from onnxpatch.formulas.factorizations import solve
from onnxpatch.formulas.symbolic import fixed_size

_MOST = 8  # rows; each beyond 3 adds nodes


def rows_of(a: torch.Tensor, name: str) -> int:
    """The number of rows, which must be static and at most 8."""
    rows = fixed_size(a, -1)
    if rows is None or rows > _MOST:
        raise RefusedError(
            f"{name} of matrices larger than {_MOST} x {_MOST} has no ONNX form; compute it outside of the graph"
        )
    return rows


def adjugate(a: torch.Tensor, n: int) -> torch.Tensor:
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


def determinant(a: torch.Tensor, cofactors: torch.Tensor) -> torch.Tensor:
    """First row times first column of the adjugate, shape (...)."""
    return (a[..., 0, :] * cofactors[..., :, 0]).sum(-1)


def inverse(a: torch.Tensor, name: str) -> torch.Tensor:
    """The inverse of (..., n, n)."""
    rows = rows_of(a, name)
    # Beyond 3 rows cofactors take more nodes than elimination does.
    if rows > 3:
        return eliminated(a, torch.eye(rows, dtype=a.dtype, device=a.device).expand_as(a), rows)
    cofactors = adjugate(a, rows)
    return cofactors / determinant(a, cofactors)[..., None, None]


def eliminated(a: torch.Tensor, b: torch.Tensor, rows: int) -> torch.Tensor:
    """x with a x = b, computed in float64."""
    wide = torch.broadcast_tensors(a[..., :1, :1].double(), b[..., :1, :1].double())[0].shape[:-2]
    left, right = (one.double().expand([*wide, *one.shape[-2:]]) for one in (a, b))
    return solve(left, right, rows).to(a.dtype)


class _Geometry(torch.nn.Module):
    """Inverts camera matrices and solves a small system."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = a + 3 * torch.eye(3)
        larger = torch.cat((a, b), -1) @ torch.cat((a, b), -1).transpose(-2, -1)
        five = torch.nn.functional.pad(larger, (1, 1, 1, 1)) + torch.eye(5).flip(0)
        wide = torch.linalg.inv(five), torch.linalg.solve(five, five[..., :2])
        three = torch.inverse(a), torch.linalg.solve(a, b), torch.linalg.solve(a, a)
        return *three, torch.linalg.inv(a[..., :2, :2]), *wide


@patch(
    "torch.inverse",
    "torch.Tensor.inverse",
    "torch.linalg.inv",
    "torch.linalg.solve",
    "torch.linalg.inv_ex",
    name="inverse",
    why="Exporting the operator 'aten::linalg_inv' / 'aten::linalg_solve' to ONNX is not supported",
    link="https://github.com/pytorch/pytorch/issues/107948",
    proof=Proof(
        build=_Geometry,
        inputs=lambda: [(torch.randn(b, n, 3, 3), torch.randn(b, n, 3, 2)) for b, n in ((2, 5), (3, 9), (1, 4))],
        dynamic_shapes=({0: "batch", 1: "length"}, {0: "batch", 1: "length"}),
        fails=("trace", "dynamo"),
        reason="aten.linalg_inv|aten::linalg_inv",
    ),
)
def invert(
    original: Callable[..., torch.Tensor],
    a: torch.Tensor,
    B: Any = None,
    *,
    left: bool = True,
    check_errors: bool = False,
) -> object:
    """inv(a), or solve(a, B) = inv(a) B: the adjugate over the determinant, or elimination."""
    name = original.__name__
    if "solve" in name:
        if not left:
            raise RefusedError("torch.linalg.solve with left=False has no ONNX form here: transpose both")
        vector = B.dim() == a.dim() - 1
        solved = torch.matmul(inverse(a, "solve"), B.unsqueeze(-1) if vector else B)
        return solved.squeeze(-1) if vector else solved
    found = inverse(a, name)
    return (found, torch.zeros_like(a[..., 0, 0], dtype=torch.int32)) if name.endswith("_ex") else found
