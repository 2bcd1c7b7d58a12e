"""Indexing with 0-d tensors under dynamo, where `Tensor.__getitem__` would turn them into Python numbers.

x[:n]        n a 0-d tensor      x[:n.item()]               the end of a slice as a SymInt
x[i]         i a 0-d tensor      x[i.reshape(1)][0]         gathers one row, then drops its axis
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from onnxpatch.control_flow.capture import Capture
from onnxpatch.control_flow.loops.writes import write
from onnxpatch.control_flow.symbolic_numbers import as_number

_T = torch.Tensor


def indexed(
    capture: Capture, function: Callable[..., object], tensor: torch.Tensor, index: object, *value: object
) -> object:
    """`tensor[index]`, or `tensor[index] = value`, without taking numbers out of tensors."""
    if value and write(capture, tensor, index, value[0]):
        return None
    if capture.exporter == "dynamo":
        index = (
            tuple(_with_number_ends(capture, i) for i in index)
            if isinstance(index, tuple)
            else (_with_number_ends(capture, index))
        )
        if not value and (gather := _gather_index(capture, index)) is not None:
            rows = capture.execute(function, (tensor, gather[0]))
            return capture.execute(torch.select, (rows, gather[1], 0))
    return capture.execute(function, (tensor, index, *value))


def _gather_index(capture: Capture, index: object) -> tuple[tuple[object, ...], int] | None:
    """An index with 0-d whole numbers, as an index with tensors [1], and the axis of length 1 that it leaves.

    None for any other index.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    numbers = [part for part in parts if isinstance(part, torch.Tensor)]
    plain = all(isinstance(part, torch.Tensor | slice | int | torch.SymInt) or part is None for part in parts)
    if not numbers or not plain or not all(_is_whole_number(part) for part in numbers):
        return None
    # Plain ints drop their axis; tensors side by side leave one axis in their place, tensors apart leave it in front.
    # bool is a subclass of int, but True as an index adds an axis.
    kept = [part for part in parts if not isinstance(part, int | torch.SymInt) or isinstance(part, bool)]
    places = [at for at, part in enumerate(kept) if isinstance(part, torch.Tensor)]
    axis = places[0] if places[-1] - places[0] == len(places) - 1 else 0
    rows = [capture.execute(_T.reshape, (part, (1,))) if isinstance(part, torch.Tensor) else part for part in parts]
    return tuple(rows), axis


def _is_whole_number(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 0 and not tensor.is_floating_point() and tensor.dtype is not torch.bool


def _with_number_ends(capture: Capture, index: object) -> object:
    """A slice with 0-d tensors as ends, as a slice with numbers; any other index as it is."""
    if not isinstance(index, slice):
        return index
    ends = (index.start, index.stop, index.step)
    return slice(*(as_number(capture, end) if isinstance(end, torch.Tensor) else end for end in ends))
