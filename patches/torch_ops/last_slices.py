"""The last element of an axis, `x[:, -1:]`. torch.export cannot show that its length is 1 if the size is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas.symbolic import symbolic


class _Sine(torch.nn.Module):
    """DETR's sine embedding: rows and columns of a map that was halved three times, divided by the last of them."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = x[:, :, ::2, ::2]
        batch, _, height, width = x.shape
        rows = torch.arange(1, height + 1, dtype=x.dtype)[None, :, None].expand(batch, height, width)
        columns = torch.arange(1, width + 1, dtype=x.dtype)[None, None, :].expand(batch, height, width)
        rows = rows / (rows[:, -1:, :] + 1e-6)
        columns = columns / (columns[:, :, -1:] + 1e-6)
        return x * (rows + columns)[:, None]


def _images() -> list[tuple[Tensor]]:
    # 33 and 52 do not halve evenly three times.
    return [(torch.randn(2, 3, *size),) for size in ((192, 256), (33, 52), (160, 64))]


def _takes_last(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    return any(_is_last(item) for item in _items(args[1]))


@patch(
    "torch.Tensor.__getitem__",
    calls=_takes_last,  # only these: indices into complex tensors are for the patch of complex numbers
    name="last-slice",
    why="The size of tensor a must match the size of tensor b (Min(1, Max(0, ...))); The following inconsistencies "
    "were found: Eq(A, Max(0, A - Max(0, A - 1)))",
    link="https://github.com/huggingface/transformers/pull/34393",
    exporters=("dynamo",),
    proof=Proof(
        _Sine,
        _images,
        ({0: "b", 2: "h", 3: "w"},),
        fails=("dynamo",),
        reason="inconsistencies were found",
        unchanged="fixed sizes",
    ),
)
def last_slice(original: Callable[..., Tensor], tensor: Tensor, index: object) -> Tensor:
    """Gives `tensor[..., -1:, ...]` a length of 1, whatever the formula of the axis' size. An empty axis is refused."""
    items = _items(index)
    rest, axis, kept = sum(_axes(item) for item in items), 0, []
    given = tensor
    for item in items:
        if _is_last(item) and symbolic(tensor.shape[axis]):
            # A selected axis is gone, and one put in has the length 1 by itself.
            tensor, item = tensor.select(axis, -1).unsqueeze(axis), slice(None)
        kept.append(item)
        # `...` stands for the axes that no other item uses.
        axis += tensor.dim() - rest if item is Ellipsis else _axes(item)
    return NotImplemented if tensor is given else original(tensor, tuple(kept))


def _items(index: object) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _is_last(item: object) -> bool:
    return isinstance(item, slice) and isinstance(item.start, int) and item.start == -1 and item.stop is None


def _axes(item: object) -> int:
    """How many axes of the tensor an item of an index uses."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return item.dim() if isinstance(item, Tensor) and item.dtype == torch.bool else 1
