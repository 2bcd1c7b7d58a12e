"""`x + 1e-12` and `x * 1.000001`, which the exporter's optimizer takes for `x + 0` and `x * 1`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas.proof_models import Computes

_ADDING = {
    torch.add, torch.sub, Tensor.add, Tensor.sub, Tensor.__add__, Tensor.__radd__, Tensor.__sub__, Tensor.__iadd__,
    Tensor.__isub__, Tensor.add_, Tensor.sub_,
}  # fmt: skip
_SCALING = {
    torch.mul, torch.div, Tensor.mul, Tensor.div, Tensor.__mul__, Tensor.__rmul__, Tensor.__truediv__, Tensor.__imul__,
    Tensor.__itruediv__, Tensor.mul_, Tensor.div_,
}  # fmt: skip


def _taken_for_nothing(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether a call adds a number near 0, or multiplies by one near 1."""
    if kwargs or len(args) != 2 or function not in _ADDING | _SCALING:
        return False
    tensor, number = args
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point() or type(number) is not float:
        return False
    apart = abs(number) if function in _ADDING else abs(number - 1)
    return 0 < apart <= (2e-8 if function in _ADDING else 2e-5)


class _Weighted(torch.nn.Module):
    """A mean whose weights may all be 0, and a scale that is nearly 1."""

    def forward(self, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        total = weights.sum(1, keepdim=True) + 1e-12
        return (x * weights).sum(1, keepdim=True) / total, (x * 1.000004 - x) * 1e6


def _rows() -> list[tuple[Tensor, Tensor]]:
    return [(torch.randn(b, n).abs() + 1, torch.zeros(b, n)) for b, n in ((2, 3), (3, 5), (1, 1))]


@patch(
    "torch.*",
    name="small-numbers",
    why="x + 1e-12 is left out of the graph, x / (norm + 1e-8) is NaN there: onnxscript's rewriter compares with 0 and "
    "1 up to a tolerance",
    link="https://github.com/microsoft/onnxscript/blob/main/onnxscript/rewriter/_pattern_ir.py",
    exporters=("dynamo",),
    calls=_taken_for_nothing,
    proof=Proof(
        _Weighted,
        _rows,
        ({0: "batch", 1: "length"},) * 2,
        fails=("dynamo",),
        reason="non-finite values differ|relative error|NaN|nan",
        unchanged=lambda: Computes(lambda x, weights: (x.double() + 1e-5) * 1.5 + weights),
    ),
)
def small_number(original: Callable[..., Tensor], tensor: Tensor, number: float) -> Tensor:
    """The number as a tensor of one element: the optimizer looks at scalars alone."""
    if tensor.dim():
        return original(tensor, torch.full((1,), number, dtype=tensor.dtype, device=tensor.device))
    if original.__name__.endswith("_") and not original.__name__.endswith("__"):
        return NotImplemented
    one = torch.full((1,), number, dtype=tensor.dtype, device=tensor.device)
    return original(tensor.reshape(1), one).reshape(())
