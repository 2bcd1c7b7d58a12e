"""Negative numbers in index tensors, `x[rows, lengths - 1]`: under dynamo=False they read a wrong row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, patch


class _LastToken(torch.nn.Module):
    """The last step of each row by its mask. For an empty row the index is -1, the last step of all."""

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.arange(x.shape[0])
        return x[rows, mask.sum(1) - 1], x.transpose(1, 2)[rows[:, None], :, mask - 2]


def _masked() -> list[tuple[Tensor, Tensor]]:
    made = []
    for b, n in ((2, 5), (3, 9), (1, 4)):
        mask = torch.ones(b, n, dtype=torch.long)
        mask[-1] = 0
        made.append((torch.randn(b, n, 3), mask))
    return made


def _several(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    if not isinstance(args[1], tuple):
        return False
    # A single index tensor becomes a Gather, which counts negative numbers from the end by itself.
    return sum(map(_whole, args[1])) > 1 and not any(item is None or _flags(item) for item in args[1])


def _whole(item: object) -> bool:
    return isinstance(item, Tensor) and item.dtype in (torch.int64, torch.int32)


@patch(
    "torch.Tensor.__getitem__",
    calls=_several,
    name="negative-indices",
    why="The TorchScript exporter makes one index of several by arithmetic, which a negative one spoils",
    link="https://github.com/pytorch/pytorch/pull/21716",
    exporters=("trace",),
    proof=Proof(
        _LastToken,
        _masked,
        ({0: "b", 1: "n"}, {0: "b", 1: "n"}),
        fails=("trace",),
        reason="relative error",
    ),
)
def negative_indices(original: Callable[..., Tensor], tensor: Tensor, index: tuple[Any, ...]) -> Tensor:
    """Indexes with indices counted from the front."""
    axis, kept = 0, []
    for item in index:
        # The remainder has the sign of the size: -1 becomes size - 1, and 0 ... size - 1 stay.
        kept.append(torch.remainder(item, tensor.shape[axis]) if _whole(item) else item)
        # `...` takes the axes that the other items leave.
        axis += 1 if item is not Ellipsis else tensor.dim() - len(index) + 1
    return original(tensor, tuple(kept))


def _flags(item: object) -> bool:
    return isinstance(item, bool) or (isinstance(item, Tensor) and item.dtype in (torch.bool, torch.uint8))
