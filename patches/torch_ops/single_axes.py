"""`x[:, start:]` of an axis with one element: torch.export keeps a formula for a size that can only be one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas.symbolic import example_of, symbolic


class _Bias(torch.nn.Module):
    """MPT's bias of positions, the same for each query: cut to the queries and keys that there are."""

    def forward(self, past: Tensor, x: Tensor) -> Tensor:
        keys = torch.cat([past, x], dim=1)
        bias = torch.arange(12, dtype=x.dtype).reshape(1, 12)
        bias = bias[max(0, bias.shape[0] - keys.shape[1] - x.shape[1]) :, max(0, 12 - keys.shape[1]) :]
        return x @ keys.transpose(1, 2) + bias


def _takes_rest(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    return isinstance(args[1], tuple) and any(map(_starts_at_size, args[1]))


@patch(
    "torch.Tensor.__getitem__",
    calls=_takes_rest,
    name="single-axis",
    why="The following inconsistencies were found: Eq(s70 + Max(0, -s15 - 2*s70 + 1), 1) is inconsistent",
    link="https://github.com/pytorch/pytorch/issues/132174",
    exporters=("dynamo",),
    proof=Proof(
        _Bias,
        lambda: [(torch.randn(2, past, 4), torch.randn(2, new, 4)) for past, new in ((3, 4), (5, 1), (2, 6))],
        ({1: "past"}, {1: "new"}),
        fails=("dynamo",),
        reason="inconsisten|Max",
        unchanged="fixed sizes",
    ),
)
def single_axis(original: Callable[..., Tensor], tensor: Tensor, index: tuple[Any, ...]) -> Tensor:
    """Takes the whole axis if it has one element, and the slice has that element in the example."""
    # These move the axes that the entries behind them are of.
    if Ellipsis in index or None in index or not all(isinstance(item, slice) for item in index):
        return NotImplemented
    kept = [slice(None) if _takes_one(tensor, axis, item) else item for axis, item in enumerate(index)]
    return NotImplemented if kept == list(index) else original(tensor, tuple(kept))


def _takes_one(tensor: Tensor, axis: int, item: slice) -> bool:
    size = tensor.shape[axis]
    # At other sizes the slice may be empty in eager; what is made of it would not broadcast there.
    return isinstance(size, int) and size == 1 and _starts_at_size(item) and example_of(item.start) == 0


def _starts_at_size(item: object) -> bool:
    return isinstance(item, slice) and item.stop is None and item.step is None and symbolic(item.start)
