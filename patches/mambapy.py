"""mambapy's parallel scan: steps of doubling lengths, written in place through views, as one Scan."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import onnxpatch
from onnxpatch import op
from onnxpatch.formulas.symbolic import symbolic


class _Scan(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        import mambapy.pscan  # noqa: F401  loaded before the patches look for it

    def forward(self, factors: Tensor, x: Tensor) -> Tensor:
        from mambapy.pscan import pscan

        return pscan(torch.sigmoid(factors), x)


@op(
    "mambapy.pscan.pscan",
    name="mambapy-scan",
    why="PScan writes in place through views of a transposed tensor, and loops over halves of the example's length",
    reason="relative error|shape|onnxruntime fails",
    link="https://github.com/alxndrTL/mamba.py/blob/main/mambapy/pscan.py",
    requires=("mambapy",),
    tries=lambda b, n: tuple(torch.randn(b, n, 2, 3) for _ in range(2)),
    sizes=((2, 6), (3, 11), (1, 1)),
    case=_Scan,
    unchanged="fixed sizes",
)
def pscan(original: Callable[[Tensor, Tensor], Tensor], A_in: Tensor, X_in: Tensor) -> Tensor:
    """Computes h[t] = A[t] * h[t - 1] + X[t] along axis 1 of (batch, length, channels, states)."""
    # A static length needs no loop in the graph: mambapy's own steps are unrolled.
    if not symbolic(X_in.shape[1]):
        return NotImplemented

    def step(state: Tensor, row: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        state = row[0] * state + row[1]
        return state, state * 1  # a result must not be the state itself

    _, outs = onnxpatch.scan(step)(torch.zeros_like(X_in[:, 0]), (A_in.transpose(0, 1), X_in.transpose(0, 1)))
    return outs.transpose(0, 1)
