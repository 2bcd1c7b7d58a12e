"""Negative numbers in index tensors, `x[rows, lengths - 1]`, which count from the end: the graph reads other rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.symbolic import symbolic


def _last_token(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The last step of each row by its mask. For an empty row the index is -1, the last step of all."""
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


@op(
    "__getitem__",
    name="negative-indices",
    why="The TorchScript exporter makes one index of several by arithmetic, which a negative one spoils",
    reason="relative error",
    link="https://github.com/pytorch/pytorch/pull/21716",
    exporters=("trace",),
    calls=_several,
    tries=_masked,
    case=_last_token,
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


@op(
    "unravel_index",
    name="unravel-negative-index",
    why="whole numbers differ: the quotients of negative ones are rounded towards zero in the graph",
    reason="flags differ",
    link="https://github.com/pytorch/pytorch/issues/44692",
    exporters=("trace",),
    tries=lambda places: torch.tensor(places),
    sizes=(([1, -7, 13],), ([-20, -1, 0, 19, -6],), ([4],)),
    case=lambda x: torch.unravel_index(x, (4, 5)),
)
def unravel_index(original: object, indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """The places along each axis; a negative index counts from the end."""
    if isinstance(shape, Tensor) and shape.dim():
        return NotImplemented
    sizes = list(shape) if isinstance(shape, list | tuple) else [shape]
    places: list[Tensor] = []
    for size in reversed(sizes):
        place = torch.remainder(indices, size)
        places.insert(0, place)
        indices = torch.div(indices - place, size, rounding_mode="trunc")  # exact
    return tuple(places)


def _from_data(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    return isinstance(kwargs.get("start", args[2] if len(args) > 2 else None), Tensor)


@op(
    "narrow",
    name="narrow-from-data",
    why="PendingUnbackedSymbolNotFound under dynamo; an empty slice for a negative start under trace",
    reason="Unbacked|DataDependent|shape|not run",
    link="https://docs.pytorch.org/docs/stable/generated/torch.narrow.html",
    calls=_from_data,
    tries=lambda n, start: (torch.randn(n, 4), torch.tensor(start)),
    sizes=((4, 1), (7, -2), (3, 0)),
    case=lambda x, start: x.narrow(0, start, 2) * torch.narrow(x, 1, start.abs(), 2).sum(),
)
def narrow(original: object, input: Tensor, dim: int, start: Tensor, length: Any) -> Tensor:
    """The rows by their indices, counted from the front. A start that is a size under trace is left to torch."""
    if symbolic(start):
        return NotImplemented
    start = start.reshape(())
    start = torch.where(start < 0, start + input.shape[dim], start)
    return input.index_select(dim, start + torch.arange(length, device=input.device))
