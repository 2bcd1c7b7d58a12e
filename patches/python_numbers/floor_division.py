"""Division rounded down, which the TorchScript exporter rounds towards zero: `-7 // 2`, `-(-n // 2)`, `-5 >> 1`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas.proof_models import Computes
from onnxpatch.formulas.tracing import unseen


class _Quotients(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        whole = (x * 10).long()
        halves = -(-x.shape[1] // 2)
        return (
            x // 0.3,
            whole // 3,
            whole // whole.abs().clamp(min=2),
            x[:, :halves],
            7 // (whole.abs() + 1),
        )


def _rows() -> list[tuple[Tensor]]:
    return [(torch.randn(b, n),) for b, n in ((2, 5), (3, 9), (1, 4))]


_DIVISIONS = (torch.floor_divide, Tensor.floor_divide, Tensor.__floordiv__, Tensor.__rfloordiv__)


def _may_be_negative(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Not a size that is not negative in the trace: either way rounds it down."""
    if function not in _DIVISIONS or len(args) < 2:
        return False
    sized = isinstance(args[0], Tensor) and args[0].dim() == 0 and not _fractional(args[0])
    return not sized or function is Tensor.__rfloordiv__ or _fractional(args[1]) or not _not_negative(args[0])


@patch(
    "torch.*",
    calls=_may_be_negative,
    name="floor-division",
    why="x // 2 of negative numbers, and -(-n // 2), are rounded towards zero in the graph",
    link="https://github.com/pytorch/pytorch/issues/44692",
    exporters=("trace",),
    proof=Proof(
        _Quotients,
        _rows,
        ({0: "b", 1: "n"},),
        fails=("trace",),
        reason="relative error|flags differ",
        unchanged=lambda: Computes(lambda x: x[:, : x.shape[1] // 2]),
    ),
)
def floor_division(original: Any, input: Any, other: Any) -> Any:
    """Of floats the floor of the quotient; of whole numbers what leaves no rest."""
    if original.__name__ == "__rfloordiv__":
        input, other = torch.as_tensor(other, dtype=_dtype(other, input), device=input.device), input
    if _fractional(input) or _fractional(other):
        return torch.floor(torch.true_divide(input, other))
    return torch.floor_divide(input - torch.remainder(input, other), other)


def _dtype(number: object, beside: Tensor) -> torch.dtype | None:
    return None if isinstance(number, float) else beside.dtype


def _fractional(value: object) -> bool:
    return value.is_floating_point() if isinstance(value, Tensor) else isinstance(value, float)


def _not_negative(value: Tensor) -> bool:
    with unseen():
        return bool(value.detach() >= 0)


class _Shifts(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        whole = (x * 100).long()
        return whole >> 3, torch.bitwise_right_shift(whole.int(), 2)


@patch(
    "torch.bitwise_right_shift",
    "torch.Tensor.bitwise_right_shift",
    "torch.Tensor.__rshift__",
    name="right-shift",
    why="A right shift of a negative number is a division rounded towards zero in the graph",
    link="https://github.com/pytorch/pytorch/issues/139455",
    requires=("torch<2.14",),  # later ones divide rounded down
    exporters=("trace",),
    proof=Proof(
        _Shifts,
        _rows,
        ({0: "b", 1: "n"},),
        fails=("trace",),
        reason="flags differ",
        unchanged=lambda: Computes(lambda x: x.long() >> x.long().abs()),
    ),
)
def right_shift(original: Callable[..., Tensor], input: object, other: object) -> Any:
    """By a number: a division by its power of two, rounded down."""
    if not isinstance(other, int) or not isinstance(input, Tensor):
        return NotImplemented
    return floor_division(torch.floor_divide, input, 2**other)
