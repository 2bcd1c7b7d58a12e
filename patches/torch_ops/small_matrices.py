"""Inverse, determinant and solution for matrices of 1 to 3 rows, in closed form: ONNX has Det and no inverse."""

from __future__ import annotations

from typing import Any

import torch

from onnxpatch import Proof, RefusedError, patch


def rows_of(a: torch.Tensor, name: str) -> int:
    """The number of rows, which must be known at export and at most 3."""
    for n in (1, 2, 3):  # compared, not converted: a dynamic size stays dynamic and is refused
        if isinstance(a.shape[-1], int) and a.shape[-1] == n:
            return n
    if isinstance(a.shape[-1], torch.Tensor):  # the TorchScript exporter hands out sizes as tensors
        found = a.detach().numpy().shape[-1]
        if found <= 3:
            return found
    raise RefusedError(f"{name} of matrices larger than 3 x 3 has no ONNX form; compute it outside of the graph")


def adjugate(a: torch.Tensor, n: int) -> torch.Tensor:
    """The transposed matrix of cofactors, (..., n, n)."""
    if n == 1:
        return torch.ones_like(a)
    if n == 2:
        (p, q), (r, s) = (row.unbind(-1) for row in a.unbind(-2))
        return torch.stack((torch.stack((s, -q), -1), torch.stack((-r, p), -1)), -2)
    first, second, third = a.unbind(-2)
    cross = lambda u, v: torch.linalg.cross(u, v, dim=-1)  # noqa: E731
    return torch.stack((cross(second, third), cross(third, first), cross(first, second)), -1)


def determinant(a: torch.Tensor, cofactors: torch.Tensor) -> torch.Tensor:
    """First row times first column of the adjugate, shape (...)."""
    return (a[..., 0, :] * cofactors[..., :, 0]).sum(-1)


def inverse(a: torch.Tensor, name: str) -> torch.Tensor:
    """The inverse of (..., n, n)."""
    cofactors = adjugate(a, rows_of(a, name))
    return cofactors / determinant(a, cofactors)[..., None, None]


class _Geometry(torch.nn.Module):
    """Camera matrices inverted, a small system solved."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = a + 3 * torch.eye(3)
        return torch.inverse(a), torch.linalg.inv(a[..., :2, :2]), torch.linalg.solve(a, b), torch.linalg.solve(a, a)


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
    ),
)
def invert(original: Any, a: torch.Tensor, B: Any = None, *, left: bool = True, check_errors: bool = False) -> Any:
    """By the adjugate over the determinant; `solve` multiplies the right-hand side by it."""
    name = original.__name__
    if "solve" in name:
        if not left:
            raise RefusedError("torch.linalg.solve with left=False has no ONNX form here")
        vector = B.dim() == a.dim() - 1
        solved = torch.matmul(inverse(a, "solve"), B.unsqueeze(-1) if vector else B)
        return solved.squeeze(-1) if vector else solved
    found = inverse(a, name)
    return (found, torch.zeros_like(a[..., 0, 0], dtype=torch.int32)) if name.endswith("_ex") else found
