"""Indexing with 0-d tensors under dynamo, where `Tensor.__getitem__` would turn them into Python numbers.

x[:n]        n a 0-d tensor      x[:n.item()]               the end of a slice as a SymInt
x[i]         i a 0-d tensor      x[i.reshape(1)][0]         gathers one row, then drops its axis
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from onnxpatch.control_flow.capture import Capture
from onnxpatch.control_flow.conditions import as_number

_T = torch.Tensor


def indexed(
    capture: Capture, function: Callable[..., object], tensor: torch.Tensor, index: object, *value: object
) -> object:
    """`tensor[index]`, or `tensor[index] = value`, without taking numbers out of tensors."""
    if capture.exporter == "dynamo":
        index = (
            tuple(_with_number_ends(capture, i) for i in index)
            if isinstance(index, tuple)
            else (_with_number_ends(capture, index))
        )
        if value:
            return capture.execute(function, writable(capture, tensor, index, *value))
        if (gather := _gather_index(capture, index)) is not None:
            taken = capture.execute(function, (tensor, gather[0]))
            if gather[1] is None:
                return taken
            row = capture.execute(torch.select, (taken, gather[1], 0))
            capture.rows_taken[id(row)] = (tensor, index)
            return row
    return capture.execute(function, (tensor, index, *value))


def writable(capture: Capture, tensor: torch.Tensor, index: object, value: object) -> tuple[object, ...]:
    """The arguments of `tensor[index] = value`, with 0-d whole numbers in the index as tensors [1]."""
    gather = _gather_index(capture, index)
    if gather is None:
        return tensor, index, value
    rows, axis = gather
    if axis is not None and isinstance(value, torch.Tensor):
        # The index has an axis of length 1 now, and so must the value, unless it is broadcast there anyway.
        taken = [part for part in rows if isinstance(part, torch.Tensor | int) and not isinstance(part, bool)]
        new = sum(part is None or part is True or part is False for part in rows)
        right = tensor.dim() - len(taken) + new - axis
        if value.dim() > right:
            value = capture.execute(torch.unsqueeze, (value, value.dim() - right))
    return tensor, rows, value


def _gather_index(capture: Capture, index: object) -> tuple[tuple[object, ...], int | None] | None:
    """An index with 0-d whole numbers, as an index with tensors [1], and the axis of length 1 that it leaves.

    The axis is None where other tensors of the index give it their length. None for any other index.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    numbers = [part for part in parts if isinstance(part, torch.Tensor)]
    plain = all(isinstance(part, torch.Tensor | slice | int | torch.SymInt | None) for part in parts)
    single = [part for part in numbers if _is_whole_number(part)]
    if not single or not plain or any(part.dtype is torch.bool or part.is_floating_point() for part in numbers):
        return None
    rows = [
        capture.execute(_T.reshape, (part, (1,))) if isinstance(part, torch.Tensor) and part.dim() == 0 else part
        for part in parts
    ]
    return tuple(rows), (_axis_left(parts) if len(single) == len(numbers) else None)


def _axis_left(parts: list[object]) -> int:
    """The axis that the tensors of an index leave."""
    # Plain ints drop their axis; tensors side by side leave one axis in their place, tensors apart leave it in front.
    # bool is a subclass of int, but True as an index adds an axis.
    kept = [part for part in parts if not isinstance(part, int | torch.SymInt) or isinstance(part, bool)]
    places = [at for at, part in enumerate(kept) if isinstance(part, torch.Tensor)]
    return places[0] if places[-1] - places[0] == len(places) - 1 else 0


def _is_whole_number(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 0 and not tensor.is_floating_point() and tensor.dtype is not torch.bool


def _with_number_ends(capture: Capture, index: object) -> object:
    """A slice with 0-d tensors as ends, as a slice with numbers; any other index as it is."""
    if not isinstance(index, slice):
        return index
    ends = (index.start, index.stop, index.step)
    return slice(*(as_number(capture, end) if isinstance(end, torch.Tensor) else end for end in ends))
