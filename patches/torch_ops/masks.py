"""Masks: bools filled with a bool, elements assigned through a mask, and elements selected by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, exporting, patch
from onnxpatch.formulas.proof_models import Computes


class _Filled(torch.nn.Module):
    """A mask of places, with those beyond a length and those of large values taken out or put in."""

    def forward(self, mask: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        kept = mask.masked_fill(x > 1, False)
        return kept, torch.masked_fill(mask, x[:, :1] < 0, True)


def _masks() -> list[tuple[Tensor, Tensor]]:
    return [(torch.rand(b, n) > 0.5, torch.randn(b, n)) for b, n in ((2, 5), (3, 9), (1, 1))]


@patch(
    "torch.masked_fill",
    "torch.Tensor.masked_fill",
    name="bools-filled",
    why="We don't have an op for aten::masked_fill but it isn't a special case; "
    "Could not find an implementation for Where(16) node",
    link="https://github.com/pytorch/pytorch/issues/82762",
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Filled,
        _masks,
        ({0: "b", 1: "n"}, {0: "b", 1: "n"}),
        fails=("dynamo", "trace"),
        reason="aten::masked_fill|Where",
        unchanged=lambda: Computes(lambda mask, x: x.masked_fill(mask, 0.0)),
    ),
)
def bools_filled(original: Callable[..., Tensor], input: Tensor, mask: Tensor, value: object) -> Tensor:
    """Fills bools by `input | mask` for True, and by `input & ~mask` for False."""
    if input.dtype != torch.bool or isinstance(value, Tensor):
        return NotImplemented
    # onnxruntime has And, Or and Not of bools, and no Where.
    return input | mask if value else input & ~mask


class _Assigned(torch.nn.Module):
    """Rows of a map that a mask names get one row, or a number, or a number in some of their columns."""

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        rows, numbers, parts = x.clone(), x.clone(), x.clone()
        rows[mask] = x[0, 0]
        numbers[mask] = 0.0
        numbers[:, x[0, :, 0] > 0] = 1
        parts[mask, 0] = 2.0
        parts[mask, 3:] = x[0, 0, 3:]
        parts[..., x[0, 0] > 0] = 5.0
        return rows, numbers, parts


@patch(
    "torch.Tensor.__setitem__",
    name="masked-assignment",
    why="Attempting to broadcast an axis by a dimension other than 1; updates tensor should have shape equal to "
    "indices.shape[:-1] + data.shape[indices.shape[-1]:]; Boolean index_put with multiple indices does not support "
    "None indices",
    link="https://github.com/pytorch/pytorch/issues/92540",
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Assigned,
        lambda: [(torch.randn(b, n, 6), torch.rand(b, n) > 0.5) for b, n in ((2, 5), (3, 9), (1, 1))],
        ({0: "b", 1: "n"}, {0: "b", 1: "n"}),
        fails=("dynamo", "trace"),
        reason="broadcast|updates tensor|does not support None indices|Boolean index_put|is marked single",
        unchanged=lambda: Computes(lambda x, mask: torch.where(mask[..., None], x, 0.0)),
    ),
)
def masked_assignment(original: Callable[..., None], tensor: Tensor, index: object, value: Any) -> None:
    """Assigns to the whole tensor: the value inside of the mask, its own elements outside."""
    before, mask, rest = _mask_of(tensor, index)
    if mask is None or _is_known(before, mask, rest, tensor):
        return NotImplemented
    # The part of the tensor that holds what the mask may name: all of the masked axes, and what is asked of the others.
    place = (slice(None),) * (before + mask.dim()) + rest
    part = tensor[place]
    after = part.dim() - before - mask.dim()
    if isinstance(value, Tensor) and value.dim() > after:
        return NotImplemented  # a value for each element that the mask names
    where = mask.reshape(*mask.shape, *(1,) * after)
    fill = value if isinstance(value, Tensor) else torch.full((), value, dtype=tensor.dtype, device=tensor.device)
    # An assignment and not a result: the model keeps using the tensor, and views of it, under its name.
    original(tensor, place if rest else slice(None), torch.where(where, fill.to(tensor.dtype), part))
    return None


def _is_known(before: int, mask: Tensor, rest: tuple[object, ...], tensor: Tensor) -> bool:
    """Whether the exporter has a form: the mask names single elements; under dynamo, the first axes too."""
    if rest or before:
        return False
    return exporting() == "dynamo" or mask.dim() == tensor.dim()


def _mask_of(tensor: Tensor, index: object) -> tuple[int, Tensor | None, tuple[Any, ...]]:
    """(the number of whole axes before it, the mask, the numbers and slices behind it) of `x[:, mask, 1:]`.

    The mask is None for any other index, such as one with two masks.
    """
    items = index if isinstance(index, tuple) else (index,)
    found = [at for at, item in enumerate(items) if isinstance(item, Tensor)]
    if len(found) != 1 or (mask := items[found[0]]).dtype != torch.bool or mask.dim() == 0:
        return 0, None, ()
    front, rest = items[: found[0]], items[found[0] + 1 :]
    if front and front[0] is Ellipsis:
        front = (slice(None),) * (tensor.dim() - mask.dim() - len(rest) - len(front) + 1) + front[1:]
    whole = all(isinstance(item, slice) and item == slice(None) for item in front)
    if not whole or not all(isinstance(item, int | slice) for item in rest):
        return 0, None, ()
    return len(front), mask, rest


class _Selected(torch.nn.Module):
    """The elements that a mask names, the mask and the tensor broadcast against each other, and what they sum to."""

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return torch.masked_select(x, mask) * 2, x.masked_select(mask[:, :1]).sum()


@patch(
    "torch.masked_select",
    "torch.Tensor.masked_select",
    name="masked-select",
    why="No ONNX function found for <OpOverload(op='aten.masked_select', overload='default')>",
    link="https://github.com/microsoft/onnxscript/issues/1675",
    exporters=("dynamo",),
    proof=Proof(
        _Selected,
        lambda: [(torch.randn(b, n), torch.rand(b, n) > 0.5) for b, n in ((2, 5), (3, 9), (1, 2))],
        ({0: "b", 1: "n"}, {0: "b", 1: "n"}),
        fails=("dynamo",),
        reason="aten.masked_select",
        unchanged=lambda: Computes(lambda x, mask: torch.where(mask, x, 0.0)),
    ),
)
def masked_select(original: Callable[..., Tensor], input: Tensor, mask: Tensor) -> Tensor:
    """Broadcasts input and mask to one shape, and indexes by the mask."""
    # An index by a mask does not broadcast, masked_select does.
    values, wanted = torch.broadcast_tensors(input, mask)
    return values[wanted]
