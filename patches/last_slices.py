"""The last element of an axis, `x[:, -1:]`: torch.export does not see that it is one where the size is computed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, exporting, patch
from onnxpatch.sizing.symbolic import symbolic


class _Sine(torch.nn.Module):
    """Rows halved as Swin merges them, then counted and divided by the last count, as in DETR's sine embedding."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.nn.functional.pad(x, (0, 0, 0, x.shape[2] % 2))[:, :, ::2]
        rows = x.square().cumsum(2)
        return rows / (rows[..., -1:, :] + 1e-6)


def _images() -> list[tuple[Tensor]]:
    return [(torch.randn(2, 3, *size),) for size in ((32, 8), (9, 12), (8, 4))]


@patch(
    "torch.Tensor.__getitem__",
    name="last-slice",
    why="The size of tensor a must match the size of tensor b (Min(1, Max(0, ...))); The following inconsistencies "
    "were found: Eq(A, Max(0, A - Max(0, A - 1)))",
    link="https://github.com/huggingface/transformers/pull/34393",
    exporters=("dynamo",),
    proof=Proof(_Sine, _images, ({0: "b", 2: "h", 3: "w"},), fails=("dynamo",)),
)
def last_slice(original: Any, tensor: Tensor, index: Any) -> Tensor:
    """`tensor[..., -1:, ...]` has one element there, whatever formula the axis' size has; an empty axis is refused."""
    items = index if type(index) is tuple else (index,)
    if exporting() != "dynamo" or not any(_is_last(item) for item in items):
        return original(tensor, index)
    rest, axis, kept = sum(_axes(item) for item in items), 0, []
    for item in items:
        if _is_last(item) and symbolic(tensor.shape[axis]):
            tensor, item = tensor.select(axis, -1).unsqueeze(axis), slice(None)
        kept.append(item)
        axis += tensor.dim() - rest if item is Ellipsis else _axes(item)
    return original(tensor, tuple(kept))


def _is_last(item: Any) -> bool:
    return isinstance(item, slice) and isinstance(item.start, int) and item.start == -1 and item.stop is None


def _axes(item: Any) -> int:
    """How many axes of the tensor one item of an index takes up."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return item.dim() if isinstance(item, Tensor) and item.dtype == torch.bool else 1
