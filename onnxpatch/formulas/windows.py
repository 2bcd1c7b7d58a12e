"""Windows over a feature map of dynamic size: pad, partition, merge, cyclic shift and its mask.

There is no branch on a size and no `int()`. A map is always padded to whole windows. Every reshape splits or merges one
axis, so that torch.export has few symbolic strides to reason about: with others it takes minutes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Pair = tuple[int, int]


def is_static(*sizes: object) -> bool:
    """Whether all sizes are ints, so that a Python branch on them is right in the graph."""
    return all(isinstance(size, int) for size in sizes)


def on_each_axis(value: object, rank: int) -> list[Any]:
    """The sizes, steps or pads of a window over `rank` axes, of which one number, `n` or `[n]`, stands for all."""
    given = list(value) if isinstance(value, tuple | list) else [value]
    return given * rank if len(given) == 1 else given


def windows_over(size: int, window: int) -> int:
    """ceil(size / window), written so that sympy keeps one floor division."""
    return (size + (window - 1)) // window


def pad_to(x: Tensor, multiple: Pair) -> Tensor:
    """(B, H, W, C) with zeros below and right, up to the next multiples in height and width."""
    height, width = x.shape[1:3]
    # Not `-height % multiple`: sympy knows of this form that the sum divides.
    below = windows_over(height, multiple[0]) * multiple[0] - height
    right = windows_over(width, multiple[1]) * multiple[1] - width
    return functional.pad(x, (0, 0, 0, right, 0, below))


def partition(x: Tensor, window: Pair, columns: int) -> Tensor:
    """(B, rows * wh, columns * ww, C) to (B * rows * columns, wh * ww, C), rows of windows first."""
    high, wide = window
    channels = x.shape[-1]
    # Rows of a window stay together (width * channels), so the Transpose copies long runs.
    strips = x.reshape(-1, high, columns, wide * channels).transpose(1, 2)
    return strips.reshape(-1, high * wide, channels)


def merge(windows: Tensor, window: Pair, grid: Pair) -> Tensor:
    """(B * rows * columns, wh * ww, C) back to (B, rows * wh, columns * ww, C)."""
    (high, wide), (rows, columns) = window, grid
    channels = windows.shape[-1]
    strips = windows.reshape(-1, columns, high, wide * channels).transpose(1, 2)
    return strips.reshape(-1, rows * high, columns * wide, channels)


def larger_than(window: int, size: Pair) -> Tensor:
    """0-d bool: whether both sides of a map have more cells than the window."""
    return more_than(window, size[0]) & more_than(window, size[1])


def more_than(count: int, size: Any) -> Tensor:
    """0-d bool: whether size > count. In Python that would be a bool of the example's size."""
    # An arange of a dynamic length is a tensor under both exporters, which a comparison of a size is not.
    return (torch.arange(size) >= count).any()


def rolled(x: Tensor, shifts: tuple[Tensor, Tensor]) -> Tensor:
    """(B, H, W, C), rolled along height and width. shifts: 0-d int64 tensors, which `torch.roll` does not take."""
    for dim, shift in zip((1, 2), shifts, strict=True):
        size = x.shape[dim]
        source = torch.arange(size, device=x.device) - shift
        # Not `% size`: aten.remainder with a symbolic size has no ONNX form under torch.export.
        source = source + size * ((source < 0).long() - (source >= size).long())
        x = x.index_select(dim, source)
    return x


def shift_mask(
    window: Pair, shift: Pair, grid: Pair, like: Tensor, active: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """(rows * columns, wh * ww, wh * ww): -100 between cells that are neighbours only by the cyclic shift, else 0.

    Only windows in the last row and the last column have such cells, so a window's mask is one of four constants.
    active: two 0-d bools; False: nothing was shifted along that axis. dtype and device are those of `like`.
    """
    tables = _edge_masks(window, shift).to(like)
    # One arange over all windows, not a broadcast of rows and columns: torch.export specializes a count that is 1.
    place = torch.arange(grid[0] * grid[1], device=like.device)
    row = place // grid[1]
    at_end = ((row == grid[0] - 1).long(), (place - row * grid[1] == grid[1] - 1).long())
    if active is not None:
        at_end = (at_end[0] * active[0], at_end[1] * active[1])
    return tables[2 * at_end[0] + at_end[1]]


def _edge_masks(window: Pair, shift: Pair) -> Tensor:
    """(4, wh * ww, wh * ww): the masks of a window inside, in the last column, in the last row, in the corner."""

    def apart(size: int, moved: int) -> Tensor:
        # Cells from the other end: neighbours of each other, and of no other cell.
        wrapped = torch.tensor([place >= size - moved for place in range(size)])
        return wrapped[:, None] != wrapped[None, :]

    (high, wide), area = window, window[0] * window[1]
    rows = apart(high, shift[0])[:, None, :, None].expand(high, wide, high, wide).reshape(area, area)
    columns = apart(wide, shift[1])[None, :, None, :].expand(high, wide, high, wide).reshape(area, area)
    # -100 and not -inf, as in Swin: trained weights have met this number.
    return torch.stack([torch.zeros_like(rows), columns, rows, rows | columns]) * -100.0
