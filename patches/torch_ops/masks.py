"""Masks: elements assigned or selected through one, branches that save work for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import exporting, missing, op, running_model, untraced
from onnxpatch.decisions.ask import deciding_frame
from onnxpatch.decisions.if_rules.noop_masks import answer_that_uses_mask
from onnxpatch.formulas.symbolic import constant, counted, decided_by_data, fixed_size, traced_from_sizes
from onnxpatch.patching.proof import randomised

_ATEN = torch.ops.aten


def _assigned(x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    """Rows of a map that a mask names get one row, or a number, or a number in some of their columns."""
    rows, numbers, parts = x.clone(), x.clone(), x.clone()
    rows[mask] = x[0, 0]
    numbers[mask] = 0.0
    numbers[:, x[0, :, 0] > 0] = 1
    parts[mask, 0] = 2.0
    parts[mask, 3:] = x[0, 0, 3:]
    parts[..., x[0, 0] > 0] = 5.0
    parts[:, mask[0]] = x[:, mask[0]] * 2
    parts[:, ~mask[0], 2:4] = x[0, ~mask[0], 2:4] * 3
    part = parts[..., 1:4]
    part[part > 0] = -x[..., 1:4][part > 0]
    flags = ~mask
    flags[x[:, :, 0] > 0] = True
    return rows, numbers, parts, flags


@op(
    "__setitem__",
    name="masked-assignment",
    why="Attempting to broadcast an axis by a dimension other than 1; updates tensor should have shape equal to "
    "indices.shape[:-1] + data.shape[indices.shape[-1]:]; Boolean index_put with multiple indices does not support "
    "None indices",
    reason="broadcast|updates tensor|does not support None indices|Boolean index_put|is marked single",
    link="https://github.com/pytorch/pytorch/issues/92540",
    tries=lambda b, n: (torch.randn(b, n, 6), torch.rand(b, n) > 0.5),
    sizes=((2, 5), (3, 9), (1, 1)),
    case=_assigned,
    beside=("bools-chosen",),
    unchanged=lambda x, mask: torch.where(mask[..., None], x, 0.0),
)
def masked_assignment(original: Callable[..., None], tensor: Tensor, index: object, value: Any) -> None:
    """Assigns to the whole tensor: the value inside of the mask, its own elements outside."""
    made = _with_values(tensor, index, value)
    if made is None:
        return NotImplemented
    # An assignment and not a result: the model keeps using the tensor, and views of it, under its name.
    original(tensor, *made)
    return None


def _with_values(tensor: Tensor, index: object, value: Any) -> tuple[Any, Tensor] | None:
    """What to assign to, and the tensor to assign; None for what needs no help."""
    before, mask, rest = _mask_of(tensor, index)
    if mask is None or _is_known(before, mask, rest, tensor, value):
        return None
    # The part of the tensor that holds what the mask may name: all of the masked axes, and what is asked of the others.
    place = (slice(None),) * (before + mask.dim()) + rest
    part = tensor[place]
    after = part.dim() - before - mask.dim()
    if isinstance(value, Tensor) and _is_one(tensor):  # one element, or none where the mask is off
        value = torch.cat([value.reshape(-1), value.new_zeros(1)])[0]
    elif isinstance(value, Tensor) and value.dim() > after:
        value = _spread(value, mask, after)
    where = mask.reshape([*mask.shape, *(1,) * after])
    fill = value if isinstance(value, Tensor) else torch.tensor(value, dtype=tensor.dtype, device=tensor.device)
    # A 0-d tensor takes no slice.
    return place if rest else slice(None) if tensor.dim() else ..., torch.where(where, fill.to(tensor.dtype), part)


@op(
    "index_put",
    name="masked-put",
    why="Attempting to broadcast an axis by a dimension other than 1: index_put with a mask of lower rank",
    reason="broadcast",
    exporters=("trace",),
    tries=lambda b, n: (torch.randn(b, n, 6), torch.rand(b, n) > 0.5),
    case=lambda x, mask: (torch.index_put(x, (mask,), x[0, 0]), x.clone().index_put_((mask,), torch.tensor(2.0))),
    unchanged=lambda x, mask: x.index_put((torch.arange(1),), x[:1] * 2),
)
def masked_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """`masked_assignment` as a function."""
    index = tuple(slice(None) if one is None else one for one in indices)
    made = None if accumulate else _with_values(input, index, values)
    return NotImplemented if made is None else made[1]


def _replaced(x: Tensor) -> Tensor:
    """The rows that data names are computed anew: one in the example, none or several elsewhere."""
    placed, places = x.clone(), torch.where(x[:, 0, 0] > 0)[0]
    placed[places] = placed[places] * 3 - 1
    return placed


@op(
    "__setitem__",
    name="assignment-of-one-row",
    why="The input tensor cannot be reshaped to the requested shape. Input shape:{0,16,8,8}, requested shape:{16,8,8}: "
    "torch takes off the axes that have one element in the example",
    reason="cannot be reshaped|broadcast|mismatch",
    link="https://github.com/pytorch/pytorch/blob/main/torch/csrc/autograd/python_variable_indexing.cpp",
    exporters=("trace",),
    tries=lambda b, named: torch.cat([torch.rand(named, 2, 3) + 0.1, -torch.rand(b - named, 2, 3)]),
    sizes=((3, 1), (4, 2), (2, 0), (1, 1)),
    case=_replaced,
)
def assignment_of_one_row(tensor: Tensor, index: object, value: object) -> object:
    """Writes the rows as they are, where data decides how many they are and the example has one."""
    if not isinstance(index, Tensor) or not isinstance(value, Tensor) or value.dim() < 2:
        return NotImplemented
    rank = tensor.dim() + index.dim() - 1
    if index.dtype == torch.bool or fixed_size(value, 0) != 1 or value.dim() != rank or not decided_by_data(value, [0]):
        return NotImplemented
    tensor.index_put_((index,), value.to(tensor.dtype))
    return None


def _spread(values: Tensor, mask: Tensor, after: int) -> Tensor:
    """(..., named, after) to (..., *mask.shape, after): each value in its place, any one where the mask is off.

    One value for all of them stays one, as when torch broadcasts it.
    """
    axis = values.dim() - after - 1
    # One more: an empty mask has no value.
    padded = torch.nn.functional.pad(values, (0, 0) * after + (0, 1))
    on = mask.flatten().to(torch.int64)
    place = torch.minimum(on.cumsum(0), counted(values.shape[axis], on)) - 1
    chosen = padded.index_select(axis, place.clamp(min=0))
    return chosen.reshape([*values.shape[:axis], *mask.shape, *values.shape[axis + 1 :]])


def _is_known(before: int, mask: Tensor, rest: tuple[object, ...], tensor: Tensor, value: object) -> bool:
    """Whether the exporter has a form: the mask names single elements; under dynamo, the first axes too.

    Under trace torch mixes the places of a view with those of the mask, and takes one value for a number. A mask of no
    axes it asks while it records, under both exporters.
    """
    if rest or before or not mask.dim():
        return False
    if exporting() == "dynamo":
        return True
    one = isinstance(value, Tensor) and ((value.dim() == 1 and fixed_size(value, 0) == 1) or _is_one(tensor))
    return mask.dim() == tensor.dim() and tensor.dtype != torch.bool and not tensor._is_view() and not one


def _is_one(tensor: Tensor) -> bool:
    return all(fixed_size(tensor, axis) == 1 for axis in range(tensor.dim()))


def _mask_of(tensor: Tensor, index: object) -> tuple[int, Tensor | None, tuple[Any, ...]]:
    """(the number of whole axes before it, the mask, the numbers and slices behind it) of `x[:, mask, 1:]`.

    The mask is None for any other index, such as one with two masks.
    """
    items = index if isinstance(index, tuple) else (index,)
    found = [at for at, item in enumerate(items) if isinstance(item, Tensor)]
    if len(found) != 1 or (mask := items[found[0]]).dtype != torch.bool:
        return 0, None, ()
    front, rest = items[: found[0]], items[found[0] + 1 :]
    if front and front[0] is Ellipsis:
        front = (slice(None),) * (tensor.dim() - mask.dim() - len(rest) - len(front) + 1) + front[1:]
    whole = all(isinstance(item, slice) and item == slice(None) for item in front)
    if not whole or not all(isinstance(item, int | slice) for item in rest):
        return 0, None, ()
    return len(front), mask, rest


def _by_sums(x: Tensor) -> tuple[Tensor, ...]:
    total, one = x.sum(), x.sum().reshape(1)
    total[total < 0] = (total[total < 0] * 2).squeeze()
    one[one > 0] = (one[one > 0] * 2).squeeze()
    moved = x.clone()
    moved[total > -2] = x.mean()
    return x[x.sum() > 0] * 2, x.sum()[x.mean() > 0].sum(), total, one, moved


def _by_one_bool(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    return isinstance(args[1], Tensor) and args[1].dtype == torch.bool and not args[1].dim()


@op(
    "__getitem__",
    name="mask-of-no-axes",
    why="Could not guard on data-dependent expression Eq(u0, 1): x[x.sum() > 0] asks the mask while it is recorded; "
    "under trace it stays as in the example",
    reason="data-dependent|shape",
    link="https://github.com/pytorch/pytorch/blob/main/torch/csrc/autograd/python_variable_indexing.cpp",
    beside=("masked-assignment",),
    calls=_by_one_bool,
    tries=lambda n: torch.randn(n, 3) + n - 4,
    sizes=(5, 2),
    case=_by_sums,
)
def mask_of_no_axes(original: Callable[..., Tensor], tensor: Tensor, index: Tensor) -> Tensor:
    """The same with one axis more: of one element, or of none."""
    return original(tensor.unsqueeze(0), index.reshape(1))


@op(
    "masked_select",
    why="No ONNX function found for <OpOverload(op='aten.masked_select', overload='default')>",
    reason="aten.masked_select",
    link="https://github.com/microsoft/onnxscript/issues/1675",
    exporters=("dynamo",),
    tries=lambda b, n: (torch.randn(b, n), torch.rand(b, n) > 0.5),
    sizes=((2, 5), (3, 9), (1, 2)),
    case=lambda x, mask: (torch.masked_select(x, mask) * 2, x.masked_select(mask[:, :1]).sum()),
    unchanged=lambda x, mask: torch.where(mask, x, 0.0),
)
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """Broadcasts input and mask to one shape, and indexes by the mask."""
    # An index by a mask does not broadcast, masked_select does.
    values, wanted = torch.broadcast_tensors(input, mask)
    return values[wanted]


class _Tokens(torch.nn.Module):
    """Negative ids are looked up in a table of their own; padding (id 0) is left out of the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.special = (randomised(torch.nn.Embedding(9, 4)) for _ in range(2))

    def padding(self, ids: Tensor) -> Tensor | None:
        padding = ids.eq(0)
        if not padding.any():
            padding = None  # type: ignore[assignment]  # as fairseq's models write it
        return padding

    def forward(self, ids: Tensor) -> Tensor:
        x, special, padding = self.words(ids.clamp(min=0)), ids < 0, self.padding(ids)
        if special.any():
            other = self.special(ids.clamp(max=0).abs())
            x = torch.where(special[..., None], other, x)
        return x.cumsum(1) if padding is None else x.masked_fill(padding[..., None], 0.0).cumsum(1)


def _texts() -> list[tuple[Tensor]]:
    # The example has neither padding nor special ids; the others have one kind, and both.
    return [
        (torch.tensor(ids),) for ids in ([[1, 5, 3], [2, 7, 7]], [[1, 0, 3, 0]], [[2, -4]], [[-1, 0, 7], [1, 2, 3]])
    ]


@op(
    "__bool__",
    name="idle-mask",
    why="Could not guard on data-dependent expression Eq(u0, 1): `if mask.any():`; under trace, the graph keeps the "
    "example's answer and ignores a mask",
    reason="data-dependent expression|relative error",
    link="https://github.com/huggingface/transformers/blob/main/src/transformers/models/fsmt/modeling_fsmt.py",
    tries=_texts,
    case=_Tokens,
    unchanged=lambda ids: ids.double().masked_fill(ids.eq(0), 3).cumsum(1),
)
def idle_mask(tensor: Tensor) -> bool:
    """Answers so that the mask is used: a mask that hides nothing changes nothing."""
    frame = deciding_frame(1)
    if frame is None or tensor.dim() or traced_from_sizes(tensor):
        return NotImplemented
    answer = answer_that_uses_mask(frame)
    running = running_model()
    if answer is None or running is None or running.model is None:
        return NotImplemented
    if exporting() == "dynamo" and constant(tensor, running.model, running.tensors) is not None:
        return NotImplemented  # a mask of the model's own: the export knows its value
    return answer


# ------------------------------------------------------------------ unchecked forms
def _masked(x: Tensor) -> tuple[Tensor, Tensor]:
    mask, at = x[0, :3] < torch.tensor([9, -9, 9]), torch.tensor([-2, 0, 99])  # the mask is on, off, on
    found = _ATEN._unsafe_masked_index(x, mask, [at, at], -2.0)
    return found, _ATEN._unsafe_masked_index_put_accumulate(x, mask, [at, at], found)


@op(
    "torch._unsafe_masked_index",
    "ops.aten._unsafe_masked_index",
    name="unsafe-masked-index",
    why=missing("aten::_unsafe_masked_index"),
    reason="_unsafe_masked_index|relative error",
    case=_masked,
    tries=lambda b, n: torch.randn(b + 1, n + 3),
    beside=("unsafe-masked-index-put-accumulate",),
)
def _unsafe_masked_index(input: Tensor, mask: Tensor, indices: Any, fill: float = 0.0) -> Tensor:
    """Elements at places; a number where the mask is off, whatever the place there."""
    found = input[_within(input, indices)]
    return torch.where(mask, found, torch.full_like(found, fill))


@op(
    "torch._unsafe_masked_index_put_accumulate",
    "ops.aten._unsafe_masked_index_put_accumulate",
    name="unsafe-masked-index-put-accumulate",
    case=_masked,
    why=untraced("aten::_unsafe_masked_index_put_accumulate", "aten::_unsafe_masked_index"),
    tries=lambda b, n: torch.randn(b + 1, n + 3),
    beside=("unsafe-masked-index",),
)
def _unsafe_masked_put(input: Tensor, mask: Tensor, indices: Any = (), values: Any = 0) -> Tensor:
    """The tensor with values added at places, where the mask is on."""
    # By places in the whole tensor: several indices broadcast with each other.
    flat = input.reshape(-1)
    places = torch.arange(flat.shape[0], device=input.device)
    places = places.reshape(input.shape)[_within(input, indices)] if input.dim() else places
    written = torch.where(mask, values, torch.zeros_like(values)).expand(places.shape)
    return flat.scatter_add(0, places.reshape(-1), written.reshape(-1)).reshape(input.shape)


def _within(x: Tensor, indices: Any) -> tuple[Any, ...]:
    """The places, those outside of the axis moved to its ends. Negative ones count from the end."""
    found: list[Any] = []
    for axis, one in enumerate(indices):
        size = counted(x.shape[axis], x)
        inside = None if one is None else torch.minimum(torch.maximum(one, -size), size - 1)
        found.append(slice(None) if inside is None else torch.where(inside < 0, inside + size, inside))
    return tuple(found)
