"""`list(x)` and back: the rows of a batch, taken apart and joined again in the same order; jagged tensors.

The graph would have as many rows as the example. Each row remembers which row of which tensor it is; where all of them
are stacked or joined again in their order, the tensor itself is the result, at any batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxpatch import RefusedError, exporting, op
from onnxpatch.formulas.symbolic import example_of, function_name, remember, symbolic, whole_of


def _listed(x: Tensor) -> tuple[Tensor, Tensor]:
    """LLaVA's image features: a list of them, one for each image, and later all of their tokens in one row."""
    rows = list(x * 2)
    return torch.cat(rows, dim=0), torch.stack(list(x + 1), dim=1)


_of_rows = functools.partial(
    op,
    reason="inferred a static shape|Cannot split using values|shape",
    link="https://github.com/huggingface/transformers/blob/main/src/transformers/models/llava/modeling_llava.py",
    tries=lambda batch: torch.randn(batch, 4, 3),
    sizes=(2, 3, 1),
    case=_listed,
)


@_of_rows(
    "unbind",
    name="rows-apart",
    why="list(x): as many rows as the example's batch",
    beside=("rows-together", "rows-counted"),
)
def rows_apart(original: Callable[..., Sequence[Tensor]], input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Gives as many rows as the example has. Each remembers its number and its tensor."""
    if dim != 0 or not input.dim() or not symbolic(input.shape[0]):
        return NotImplemented
    if exporting() == "trace":
        return remember(tuple(original(input, 0)), input)
    if (count := example_of(input.shape[0])) is None:  # as many as data decides
        return NotImplemented
    # An index that is a number would be checked against the size, and pin it.
    return remember(tuple(input.index_select(0, torch.tensor([n])).squeeze(0) for n in range(count)), input)


@_of_rows(
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


@_of_rows(
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
    whole = whole_of(tensors)
    if whole is None:
        return NotImplemented
    if original.__name__ == "stack":
        return whole.movedim(0, dim % whole.dim())
    dim = dim % (whole.dim() - 1)
    return whole.movedim(0, dim).flatten(dim, dim + 1)


# On each part: (what was split, the same as the parts are now, the number of the part, how many there are).
# The parts have the example's sizes. That is right only as long as all of them come together again unchanged, so this
# is what the marks are there to find.
_PART = "__onnxpatch_part__"


def _images(x: Tensor, numbers: Tensor) -> Tensor:
    """Idefics' image features: split into those of each text, tokens of all its images in a row, and put together."""
    parts = (x * 2).split(numbers.tolist())
    return torch.cat([part.reshape(-1, part.shape[-1]) for part in parts], dim=0)


_of_parts = functools.partial(
    op,
    reason="in 'split'|inferred a static shape",
    link="https://github.com/huggingface/transformers/blob/main/src/transformers/models/idefics3/modeling_idefics3.py",
    tries=lambda *numbers: (torch.randn(sum(numbers), 4, 3), torch.tensor(numbers)),
    sizes=((1, 2), (3, 1, 2), (3,), (1, 1)),
    case=_images,
)


@_of_parts(
    "split",
    name="parts-apart",
    why="x.split(numbers.tolist()): the numbers are the example's",
    beside=("rows-apart", "parts-flattened", "parts-together"),
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


@_of_parts(
    "reshape",
    name="parts-flattened",
    why="part.reshape(-1, part.shape[-1]) of each part is that of the whole",
    beside=("rows-apart", "parts-apart", "parts-together"),
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


@_of_parts(
    "cat",
    "concat",
    "concatenate",
    name="parts-together",
    why="torch.cat(x.split(numbers.tolist())) has as many rows as the example's numbers",
    beside=("rows-apart", "parts-apart", "parts-flattened"),
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


_REDUCED = ("mean", "sum", "amax", "amin")


class _Jagged(nn.Parameter):
    """A jagged tensor: each part as a batch of one. Every function is called for each of them.

    A Parameter, since its constructor takes a tensor as it is, also while torch.export runs.
    """

    jagged: tuple[Tensor, ...] = ()

    @classmethod
    def of(cls, parts: Sequence[Tensor]) -> _Jagged:
        """These parts, each with a first axis of length 1."""
        made = cls(_HELD, requires_grad=False)
        made.jagged = tuple(parts)
        return made

    @classmethod
    def __torch_function__(cls, function: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        name, given = function_name(function), {**dict(enumerate(args)), **(kwargs or {})}
        if name in ("shape", "size", "numel", "values", "offsets", "to_padded_tensor"):
            raise RefusedError(f"{name} of a jagged tensor is not exported: ask each part of its unbind()")
        (count,) = {len(one.jagged) for one in given.values() if isinstance(one, cls)}
        found = []
        for number in range(count):
            own = {key: one.jagged[number] if isinstance(one, cls) else one for key, one in given.items()}
            placed = [own.pop(place) for place in range(len(args))]
            found.append(function(*placed, **own))
        if name == "unbind":
            return tuple(part for (part,) in found)
        if name in _REDUCED and found[0].dim() < args[0].dim():
            return torch.cat(found)
        return cls.of(found) if isinstance(found[0], Tensor) else found[0]


_HELD = torch.empty(0)


def _pooled(short: Tensor, long: Tensor) -> tuple[Tensor, Tensor]:
    """NaViT's way: images of different sizes attend each to itself, without padding."""
    x = torch.nested.nested_tensor([short, long], layout=torch.jagged)
    heads = functional.layer_norm(x, (8,)).unflatten(-1, (2, 4)).transpose(1, 2)
    mixed = functional.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(-2)
    return torch.stack([part.amax(0) for part in (x + mixed).unbind()]), mixed.mean(1)


@op(
    "nested.nested_tensor",
    "nested.as_nested_tensor",
    name="jagged-tensor",
    why="Unsupported value kind: Tensor; Unable to cast NotImplemented to Tensor; Could not guard on data-dependent "
    "expression Ne(u1, u0), of a model that makes a nested tensor",
    reason="Unsupported value kind|Unable to cast|data-dependent",
    link="https://github.com/lucidrains/vit-pytorch/blob/main/vit_pytorch/na_vit_nested_tensor.py",
    tries=lambda short, long: (torch.randn(short, 8), torch.randn(long, 8)),
    sizes=((3, 5), (2, 9), (6, 4)),
    case=_pooled,
)
def jagged_tensor(tensor_list: Sequence[Tensor], **options: Any) -> Tensor:
    """A batch of parts of one rank, of which every function takes each part by itself."""
    if isinstance(tensor_list, Tensor) or options.get("layout") is not torch.jagged:
        return NotImplemented
    return _Jagged.of([part[None].to(options.get("dtype") or part.dtype) for part in tensor_list])
