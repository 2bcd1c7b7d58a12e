"""Crops by an amount that may be 0, `if pad: x = x[..., :-pad]`: without the `if`, `x[..., :-0]` is empty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import op
from onnxpatch.decisions.if_rules.noop_padding import crops_ends
from onnxpatch.decisions.place import deciding_frame


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
