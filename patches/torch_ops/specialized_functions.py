"""Functions of which torch.export keeps the example's sizes, or asks for the data: torch.kron, torch.corrcoef, ..."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas.binding import call_of
from onnxpatch.formulas.matrices import chain_matmul, corrcoef, cov, kron, multi_dot, take_along_dim, vander
from onnxpatch.formulas.symbolic import symbolic
from onnxpatch.formulas.tracing import function_name

_COMPOSED: dict[str, Callable[..., Tensor]] = {
    "kron": kron,
    "corrcoef": corrcoef,
    "cov": cov,
    "vander": vander,
    "take_along_dim": take_along_dim,
    "linalg_multi_dot": multi_dot,
    "chain_matmul": chain_matmul,
}


class _Specialized(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        chosen = torch.take_along_dim(x, x.argsort(1), 1)
        return torch.kron(x, torch.ones(2, 3)), torch.linalg.multi_dot([x, x.mT, x]), chosen


@patch(
    "torch.*",
    name="specialized-functions",
    why="tracing inferred a static shape, or aten.equal of data: torch.kron, torch.corrcoef, multi_dot, ...",
    link="https://github.com/pytorch/pytorch/issues/126972",
    exporters=("dynamo",),
    calls=lambda function, args, kwargs: function_name(function) in _COMPOSED,
    proof=Proof(
        build=_Specialized,
        inputs=lambda: [(torch.randn(rows, 7),) for rows in (4, 3, 6)],
        dynamic_shapes=({0: "rows"},),
        fails=("dynamo",),
        reason="static shape",
        unchanged="fixed sizes",
    ),
)
def compose(original: Callable[..., Tensor], *args: object, **kwargs: object) -> Tensor:
    """Computes the function of tensors with dynamic sizes from other functions."""
    given = [one for group in args for one in (group if isinstance(group, list | tuple) else [group])]
    sizes = [size for one in given if isinstance(one, Tensor) for size in one.shape]
    composed = _COMPOSED[function_name(original)]
    call = call_of(composed, original, args, kwargs, takes_original=False) if any(map(symbolic, sizes)) else None
    return NotImplemented if call is None else composed(*call[0], **call[1])
