"""Parts of a batch whose numbers are data (images for each text), joined again in the same order.

    parts = x.split(numbers.tolist())                    as many rows in each as the example has
    parts = [part.reshape(-1, c) for part in parts]      the same is done to each
    torch.cat(parts)                                     all rows of x, reshaped: no number is needed

A graph cannot have a number of parts that depends on data. But splitting and joining in the same order gives the whole
again, whatever the numbers are: each part remembers what it is a part of, and the last step returns the whole.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op

# On each part: (what was split, the same as the parts are now, the number of the part, how many there are).
# The parts have the example's sizes. That is right only as long as all of them come together again unchanged, so this
# is what the marks are there to find.
_PART = "__onnxpatch_part__"


def _images(x: Tensor, numbers: Tensor) -> Tensor:
    """Idefics' image features: split into those of each text, tokens of all its images in a row, and put together."""
    parts = (x * 2).split(numbers.tolist())
    return torch.cat([part.reshape(-1, part.shape[-1]) for part in parts], dim=0)


_row = functools.partial(
    op,
    reason="in 'split'",
    link="https://github.com/huggingface/transformers/blob/main/src/transformers/models/idefics3/modeling_idefics3.py",
    exporters=("trace",),
    tries=lambda *numbers: (torch.randn(sum(numbers), 4, 3), torch.tensor(numbers)),
    sizes=((1, 2), (3, 1), (1, 1)),  # two texts each time: how many parts there are is the example's
    case=_images,
)


@_row(
    "split",
    name="parts-apart",
    why="x.split(numbers.tolist()): the numbers are the example's",
    beside=("parts-flattened", "parts-together"),
)
def parts_apart(
    original: Callable[..., Sequence[Tensor]], tensor: Tensor, split_size_or_sections: object, dim: int = 0
) -> tuple[Tensor, ...]:
    """Splits as in the example. Each part remembers its number and the whole."""
    if dim != 0 or not isinstance(split_size_or_sections, list | tuple):
        return NotImplemented
    parts = tuple(original(tensor, split_size_or_sections, 0))
    for number, part in enumerate(parts):
        # On the tensor itself: the mark ends with it, and whatever is computed from the part is another tensor without
        # a mark.
        vars(part)[_PART] = (tensor, tensor, number, len(parts))
    return parts


@_row(
    "reshape",
    name="parts-flattened",
    why="part.reshape(-1, part.shape[-1]) of each part is that of the whole",
    beside=("parts-apart", "parts-together"),
)
def parts_flattened(original: Callable[..., Tensor], input: Tensor, shape: Sequence[Any]) -> Tensor:
    """Reshapes a part. If its rows stay in order, the result is marked as the same part of the reshaped whole."""
    mark = getattr(input, _PART, None)
    if mark is None or len(shape) != 2 or int(shape[0]) != -1 or int(shape[1]) != int(input.shape[-1]):
        return NotImplemented
    flat = original(input, shape)
    source, whole, number, count = mark
    vars(flat)[_PART] = (source, whole.flatten(0, -2), number, count)
    return flat


@_row(
    "cat",
    "concat",
    "concatenate",
    name="parts-together",
    why="torch.cat(x.split(numbers.tolist())) has as many rows as the example's numbers",
    beside=("parts-apart", "parts-flattened"),
)
def parts_together(original: Callable[..., Tensor], tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Returns the whole if all of its parts are joined in their order, along the axis of the split."""
    found = [getattr(tensor, _PART, None) for tensor in tensors] if isinstance(tensors, list | tuple) else []
    marks = [mark for mark in found if mark is not None]
    if dim != 0 or not marks:
        return NotImplemented
    source, whole, _, count = marks[0]
    numbers = [mark[2] for mark in marks if mark[0] is source]
    return whole if numbers == list(range(count)) and len(found) == count else NotImplemented
