"""Axes and slices: axes counted from the end, the last element, an axis of one element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.symbolic import example_of, symbolic


def _turned(x: Tensor) -> tuple[Tensor, ...]:
    return (
        x.permute(0, -1, 1),
        torch.permute(x, (-1, 0, -2)),
        x.movedim(-1, -3),
        torch.moveaxis(x, (0, -1), (-1, 0)),
    )


@op(
    "permute",
    "movedim",
    "moveaxis",
    name="negative-axes",
    why="Node (/Transpose) Op (Transpose) Invalid attribute perm: the exported file does not load",
    reason="perm",
    link="https://github.com/pytorch/pytorch/issues/97296",
    exporters=("trace",),
    tries=lambda b, n: torch.randn(b, n, 4),
    sizes=((2, 3), (3, 5), (1, 1)),
    case=_turned,
)
def permute(original: Callable[..., Tensor], x: Tensor, *axes: object, **named: object) -> Tensor:
    """Makes the call with axes counted from the front."""
    rank = x.dim()
    if "permute" in original.__name__:
        order = _numbers(named["dims"] if "dims" in named else axes[0] if len(axes) == 1 else axes)
    else:
        source, destination = (_numbers(one) for one in (*axes, *named.values()))
        order = _moved(rank, [a % rank for a in source], [a % rank for a in destination])
    whole = [axis % rank for axis in order]
    return NotImplemented if list(order) == whole and "permute" in original.__name__ else x.permute(whole)


def _numbers(axes: Any) -> list[int]:
    return list(axes) if isinstance(axes, tuple | list | torch.Size) else [axes]


def _moved(rank: int, source: list[int], destination: list[int]) -> list[int]:
    """`movedim` as a permutation."""
    place = dict(zip(destination, source, strict=True))
    rest = iter(axis for axis in range(rank) if axis not in source)
    # The axes that are not named keep their order.
    return [place[axis] if axis in place else next(rest) for axis in range(rank)]


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


def _takes_last(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    return any(_is_last(item) for item in _items(args[1]))


@op(
    "__getitem__",
    name="last-slice",
    why="The size of tensor a must match the size of tensor b (Min(1, Max(0, ...))); The following inconsistencies "
    "were found: Eq(A, Max(0, A - Max(0, A - 1)))",
    link="https://github.com/huggingface/transformers/pull/34393",
    # only these: indices into complex tensors are for the patch of complex numbers
    calls=_takes_last,
    exporters=("dynamo",),
    reason="inconsistencies were found",
    # 33 and 52 do not halve evenly three times.
    tries=lambda b, h, w: torch.randn(b, 3, h, w),
    sizes=((2, 192, 256), (1, 33, 52), (3, 160, 64)),
    case=_Sine,
    unchanged="fixed sizes",
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


def _bias(past: Tensor, x: Tensor) -> Tensor:
    """MPT's bias of positions, the same for each query: cut to the queries and keys that there are."""
    keys = torch.cat([past, x], dim=1)
    bias = torch.arange(12, dtype=x.dtype).reshape(1, 12)
    bias = bias[max(0, bias.shape[0] - keys.shape[1] - x.shape[1]) :, max(0, 12 - keys.shape[1]) :]
    return x @ keys.transpose(1, 2) + bias


def _takes_rest(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    return isinstance(args[1], tuple) and any(map(_starts_at_size, args[1]))


@op(
    "__getitem__",
    name="single-axis",
    why="The following inconsistencies were found: Eq(s70 + Max(0, -s15 - 2*s70 + 1), 1) is inconsistent",
    reason="inconsisten|Max",
    link="https://github.com/pytorch/pytorch/issues/132174",
    calls=_takes_rest,
    exporters=("dynamo",),
    tries=lambda past, new: (torch.randn(2, past, 4), torch.randn(2, new, 4)),
    sizes=((3, 4), (5, 1), (2, 6)),
    case=_bias,
    unchanged="fixed sizes",
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
