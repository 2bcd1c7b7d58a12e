"""Shortcuts past a resize: an `if` that returns the position table unchanged if the image has the training size.

    if npatch == self.n: return self.pos_embed        the exporter asks: bool(npatch == self.n)
    return F.interpolate(self.pos_embed, ...)         exported at the training size, this is not in the graph

So are other `if`s on sizes of which one side is right at every size, as `decisions.if_rules` knows. Where it knows
none, the exporter goes on as it would.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.decisions.if_rules.answer import right_side
from onnxpatch.decisions.place import deciding_frame
from onnxpatch.formulas.symbolic import traced_from_sizes


class _Trained(torch.nn.Module):
    """A position table, unchanged at its training size, else resized to the image's grid with DINO's offset."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(1, 16, 6))

    def positions(self, height: Any, width: Any, count: object) -> Tensor:
        if count == self.table.shape[1] and height == width:
            return self.table
        grid = self.table.reshape(1, 4, 4, 6).permute(0, 3, 1, 2)
        factor = ((height + 0.1) / 4, (width + 0.1) / 4)
        grid = torch.nn.functional.interpolate(grid, scale_factor=factor, mode="bicubic")
        return grid.permute(0, 2, 3, 1).reshape(1, -1, 6)

    def forward(self, image: Tensor) -> Tensor:
        tokens = torch.nn.functional.avg_pool2d(image, 4).flatten(2).transpose(1, 2)
        return tokens.mean(2, keepdim=True) + self.positions(image.shape[2] // 4, image.shape[3] // 4, tokens.shape[1])


_row = functools.partial(
    op,
    why="exported at the trained size, the graph keeps the position table as it is and fails elsewhere",
    reason="broadcast an axis",
    link="https://github.com/facebookresearch/dinov2/issues/288",
    # The example has the trained size, at which the graph would leave out the resize.
    tries=lambda b, h, w: torch.randn(b, 3, h, w),
    sizes=((2, 16, 16), (1, 28, 36), (2, 8, 32), (3, 20, 20)),
    case=_Trained,
    unchanged="fixed sizes",
    # With the shortcut gone the resize is in the graph, whose scale factors are that patch's.
    beside=("interpolate",),
)


@_row("SymBool.__bool__", name="size-shortcut", exporters=("dynamo",))
def size_shortcut(original: Callable[[Any], bool], value: object) -> bool:
    """Answers an `if` on sizes that would skip a resize, so that the resize is done at every size."""
    answer = _answer(value)
    return NotImplemented if answer is None else answer


@_row("Tensor.__bool__", name="size-shortcut-trace", exporters=("trace",))
def size_shortcut_trace(original: Callable[[Any], bool], value: Tensor) -> bool:
    """The same under trace, where sizes are 0-d tensors."""
    if value.dim() or not traced_from_sizes(value):
        return NotImplemented
    answer = _answer(value)
    return NotImplemented if answer is None else answer


def _answer(value: object) -> bool | None:
    # 2: past this function and the stand-in that calls it.
    frame = deciding_frame(2)
    return None if frame is None else right_side(frame, value)
