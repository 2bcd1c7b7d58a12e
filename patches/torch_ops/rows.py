"""`list(x)` and back: the rows of a batch, taken apart and joined again in the same order.

The graph would have as many rows as the example. Each row remembers which row of which tensor it is; where all of them
are stacked or joined again in their order, the tensor itself is the result, at any batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from onnxpatch import exporting, op
from onnxpatch.formulas.symbolic import example_of, symbolic

_ROW = "__onnxpatch_row__"  # on each row: (the tensor it is of, its number, how many there are in the example)


def _listed(x: Tensor) -> tuple[Tensor, Tensor]:
    """LLaVA's image features: a list of them, one for each image, and later all of their tokens in one row."""
    rows = list(x * 2)
    return torch.cat(rows, dim=0), torch.stack(list(x + 1), dim=1)


_row = functools.partial(
    op,
    reason="inferred a static shape|Cannot split using values|shape",
    link="https://github.com/huggingface/transformers/blob/main/src/transformers/models/llava/modeling_llava.py",
    tries=lambda batch: torch.randn(batch, 4, 3),
    sizes=(2, 3, 1),
    case=_listed,
)


@_row(
    "unbind",
    name="rows-apart",
    why="list(x): as many rows as the example's batch",
    beside=("rows-together", "rows-counted"),
)
def rows_apart(original: Callable[..., Sequence[Tensor]], input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Gives as many rows as the example has. Each remembers its number and its tensor."""
    if dim != 0 or input.dim() < 2 or not symbolic(input.shape[0]):
        return NotImplemented
    if exporting() == "trace":
        rows = tuple(original(input, 0))
    else:  # an index that is a number would be checked against the size, and pin it
        numbers = range(example_of(input.shape[0]) or 0)
        rows = tuple(input.index_select(0, torch.tensor([number])).squeeze(0) for number in numbers)
    for number, row in enumerate(rows):
        # On the tensor itself: what is computed from a row is another tensor, without a mark.
        vars(row)[_ROW] = (input, number, len(rows))
    return rows


@_row(
    "__len__",
    name="rows-counted",
    why="list(x) asks for the length: inferred a static shape of 2 for dimension x.shape[0]",
    reason="inferred a static shape",
    exporters=("dynamo",),
    beside=("rows-apart", "rows-together"),
)
def rows_counted(original: Callable[..., int], tensor: Tensor) -> int:
    """Gives the example's number of rows to `list(x)`. `len(x)` in a model's code has a patch of its own."""
    count = example_of(tensor.shape[0]) if tensor.dim() and symbolic(tensor.shape[0]) else None
    return NotImplemented if count is None else count


@_row(
    "cat",
    "concat",
    "concatenate",
    "stack",
    name="rows-together",
    why="torch.cat(list(x)) has as many rows as the example's batch",
    beside=("rows-apart", "rows-counted"),
)
def rows_together(original: Callable[..., Tensor], tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Returns the tensor if all its rows are joined in order, with its first axis merged into or moved to `dim`."""
    whole = _whole(tensors)
    if whole is None:
        return NotImplemented
    if original.__name__ == "stack":
        return whole.movedim(0, dim % whole.dim())
    dim = dim % (whole.dim() - 1)
    return whole.movedim(0, dim).flatten(dim, dim + 1)


def _whole(tensors: Sequence[Tensor]) -> Tensor | None:
    marks = [getattr(tensor, _ROW, None) for tensor in tensors] if isinstance(tensors, list | tuple) else []
    if not marks or marks[0] is None:
        return None
    whole, _, count = marks[0]
    numbers = [mark[1] for mark in marks if mark is not None and mark[0] is whole]
    # All rows, in order, and nothing else between them: only then is the whole what eager makes at any size.
    return whole if numbers == list(range(count)) and len(marks) == count else None
