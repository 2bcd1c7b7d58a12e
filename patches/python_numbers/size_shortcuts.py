"""Shortcuts past a resize: an `if` that returns the position table unchanged if the image has the training size.

    if npatch == self.n: return self.pos_embed        the exporter asks: bool(npatch == self.n)
    return F.interpolate(self.pos_embed, ...)         exported at the training size, this is not in the graph

So are other `if`s on sizes of which one side is right at every size, as `decisions.if_rules` knows. Where it knows
none, the exporter goes on as it would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.decisions.if_rules.answer import right_side
from onnxpatch.decisions.place import deciding_frame
from onnxpatch.formulas.symbolic import traced_from_sizes

WHY = "exported at the trained size, the graph keeps the position table as it is and fails elsewhere"


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


def _images() -> list[tuple[Tensor]]:
    # The example has the trained size, at which the graph would leave out the resize.
    return [(torch.randn(2, 3, *size),) for size in ((16, 16), (28, 36), (8, 32), (20, 20))]


def _proof(exporter: Literal["dynamo", "trace"]) -> Proof:
    return Proof(
        _Trained,
        _images,
        ({0: "b", 2: "h", 3: "w"},),
        fails=(exporter,),
        reason="broadcast an axis",
        unchanged="fixed sizes",
        # With the shortcut gone the resize is in the graph, whose scale factors are that patch's.
        beside=("interpolate",),
    )


@patch(
    "torch.SymBool.__bool__",
    name="size-shortcut",
    why=WHY,
    link="https://github.com/facebookresearch/dinov2/issues/288",
    exporters=("dynamo",),
    proof=_proof("dynamo"),
)
def size_shortcut(original: Callable[[Any], bool], value: object) -> bool:
    """Answers an `if` on sizes that would skip a resize, so that the resize is done at every size."""
    answer = _answer(value)
    return NotImplemented if answer is None else answer


@patch(
    "torch.Tensor.__bool__",
    name="size-shortcut-trace",
    why=WHY,
    link="https://github.com/facebookresearch/dinov2/issues/288",
    exporters=("trace",),
    proof=_proof("trace"),
)
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
