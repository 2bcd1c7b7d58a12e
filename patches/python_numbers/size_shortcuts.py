"""`if`s on sizes of which one side is right at every size: shortcuts past a resize, crops by what may be 0."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import op
from onnxpatch.decisions.ask import deciding_frame
from onnxpatch.decisions.conditionals import only_says
from onnxpatch.decisions.if_rules.computed_padding import side_that_pads
from onnxpatch.decisions.if_rules.noop_crops import crops_back, keeps_what_is_short
from onnxpatch.decisions.if_rules.noop_padding import crops_ends, pads_by_amounts
from onnxpatch.decisions.if_rules.noop_resizes import resizes_always, sets_size_flag
from onnxpatch.decisions.if_rules.noop_returns import remakes_table, returns_unpadded
from onnxpatch.decisions.if_rules.selected_numbers import select_items, select_locals, select_numbers
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
    return _answer(value)


@_row("Tensor.__bool__", name="size-shortcut-trace", exporters=("trace",))
def size_shortcut_trace(original: Callable[[Any], bool], value: Tensor) -> bool:
    """The same under trace, where sizes are 0-d tensors."""
    if value.dim() or not traced_from_sizes(value):
        return NotImplemented
    return _answer(value)


def _answer(value: object) -> bool:
    # 2: past this function and the stand-in that calls it.
    frame = deciding_frame(2)
    answer = None if frame is None else right_side(frame, value)
    return NotImplemented if answer is None else answer


def _chunks(x: Tensor) -> Tensor:
    """Chunks of four samples, the sound padded on both sides for them; what was padded is cut off again."""
    missing = (4 - x.shape[1] % 4) % 4
    padded = functional.pad(x, (missing // 2, missing - missing // 2))
    y = padded.reshape(x.shape[0], -1, 4).softmax(2).flatten(1)
    delta = y.shape[1] - x.shape[1]
    if delta:
        y = y[..., delta // 2 : -(delta - delta // 2)]
    longer = functional.pad(x, (0, missing))
    if missing > 0:
        longer = longer[:, :-missing]
    return y + longer


def _ends(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    return any(_computed(item) for item in _items(args[1]))


@op(
    "__getitem__",
    name="cropped-ends",
    why="shape (2, 0): `if pad: x = x[:, :-pad]` exported where pad is not 0 leaves nothing where it is",
    reason="shape|broadcast",
    link="https://github.com/facebookresearch/demucs/blob/main/demucs/utils.py",
    calls=_ends,
    tries=lambda b, n: torch.randn(b, n),
    sizes=((2, 10), (3, 8), (1, 5), (2, 3), (1, 16)),
    case=_chunks,
    unchanged=lambda x: x[:, : x.shape[1] // 2] * 2,
)
def cropped_ends(original: Callable[..., Tensor], tensor: Tensor, index: object) -> Tensor:
    """Inside such an `if`, counts the end from the front: `size - pad`."""
    frame = deciding_frame(1)
    if frame is None or not crops_ends(frame):
        return NotImplemented
    items, axis, kept = _items(index), 0, []
    for item in items:
        if _computed(item):
            item = slice(item.start, tensor.shape[axis] + item.stop, item.step)
        kept.append(item)
        # A crop has slices and `...` alone, and `...` takes the axes that the slices leave.
        axis += tensor.dim() - len(items) + 1 if item is Ellipsis else 1
    return original(tensor, tuple(kept))


def _computed(item: object) -> bool:
    # Also one that is 0 at every size: the `if` has been answered before that is known.
    return isinstance(item, slice) and isinstance(item.stop, Tensor | torch.SymInt)


def _items(index: object) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def right_side(frame: FrameType, asked: object) -> bool | None:
    """The answer that is right at every size, for the `if` whose test `frame` is evaluating; None if none is known.

    asked: a SymBool, or a 0-d bool tensor under trace, made of sizes.
    """
    # Its body has been carried out for every size, so Python must not run it again; or it returns what the rest makes.
    if select_items(frame) or select_locals(frame) or remakes_table(frame):
        return False
    # Its body only warns. Under trace the answer fixes no size.
    if isinstance(asked, torch.SymBool) and only_says(frame):
        return False
    # Its body changes nothing where the test is false.
    if pads_by_amounts(frame) or keeps_what_is_short(frame) or crops_back(frame) or sets_size_flag(frame, asked):
        return True
    # The patch of `pad` pads by nothing where the test is false.
    pads = side_that_pads(frame)
    if pads is not None:
        return pads
    # Its body returns what the rest would return as well.
    resizes = False if returns_unpadded(frame, asked) else resizes_always(frame, asked)
    # Either side does: what they give names is written behind them.
    return False if resizes is None and select_numbers(frame, asked) else resizes
