"""Indexing by numbers of the graph: rows and ranges of tensors, read or written, and modules in a container.

x[:n]              n a 0-d tensor      x[:n.item()]               the end of a slice as a SymInt
x[i]               i a 0-d tensor      x[i.reshape(1)][0]         gathers one row, then drops its axis
self.experts[k]    k from data         one path for each module of a ModuleList, Sequential or ParameterList

Under dynamo, `Tensor.__getitem__` would turn 0-d tensors into Python numbers. `target[index] = value` is done without
writing: a tensor that has the value there, and the target's values elsewhere. An index has one part for each axis.
Whole numbers, also those of the graph, name a row; what is left is

    out[:, t] = y              the whole row                    out[i, idx] = y        places that whole numbers name
    out[i, :n] = 1             a range, whose ends may be       out[i, mask] = 1       places that flags name
    out[i, :n] = x[i, :n]        numbers of the graph
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn

from onnxpatch._torch.cond import constant_answer
from onnxpatch.control_flow.capture import Capture, as_number, current_capture, decide_entry, static_value
from onnxpatch.formulas.symbolic import as_tensor

_T = torch.Tensor
_CONTAINERS = (nn.ModuleList, nn.Sequential, nn.ParameterList)
Whole = slice(None)


def indexed(
    capture: Capture, function: Callable[..., object], tensor: torch.Tensor, index: object, *value: object
) -> object:
    """`tensor[index]`, or `tensor[index] = value`, without taking numbers out of tensors."""
    if capture.exporter == "dynamo":
        if not value:
            place = tensor, index
            tensor, index = _with_windows_taken(capture, tensor, index)
            if tensor is not place[0]:
                window = indexed(capture, function, tensor, index)
                capture.rows_taken[id(window)] = place
                return window
        index = (
            tuple(_with_number_ends(capture, i) for i in index)
            if isinstance(index, tuple)
            else (_with_number_ends(capture, index))
        )
        if value:
            return capture.execute(function, writable_args(capture, tensor, index, *value))
        if (gather := _gather_index(capture, index)) is not None:
            taken = capture.execute(function, (tensor, gather[0]))
            if gather[1] is None:
                return taken
            row = capture.execute(torch.select, (taken, gather[1], 0))
            capture.rows_taken[id(row)] = (tensor, index)
            return row
    return capture.execute(function, (tensor, index, *value))


def writable_args(capture: Capture, tensor: torch.Tensor, index: object, value: object) -> tuple[object, ...]:
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


def _with_windows_taken(capture: Capture, tensor: torch.Tensor, index: object) -> tuple[torch.Tensor, object]:
    """`x[:, i : i + 2]`, i the index of a loop: the places i and i + 1 are gathered, and a whole axis is left to index.

    As numbers, the ends of each round would be new symbols, of which torch.export knows no difference.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    for axis, part in enumerate(parts):
        if not isinstance(part, slice | int | torch.Tensor) or isinstance(part, bool):
            break  # the places of further axes are not those of the parts
        if not isinstance(part, slice) or part.step is not None:
            continue
        first, last = _counted(capture, part.start), _counted(capture, part.stop)
        if first is None or last is None or first[0] is not last[0] or first[1] != last[1] or first[2] >= last[2]:
            continue
        index_of_loop, factor, start = first
        if factor * capture.counters[id(index_of_loop)] + start < 0:
            continue
        if not _all_whole(capture, index_of_loop, factor, last[2], tensor.shape[axis]):
            continue
        places = capture.execute(torch.arange, (start, last[2]))
        shift = capture.execute(_T.mul, (index_of_loop, factor)) if factor != 1 else index_of_loop
        places = capture.execute(torch.add, (places, shift))
        tensor, parts[axis] = capture.execute(torch.index_select, (tensor, axis, places)), Whole
    return tensor, tuple(parts) if isinstance(index, tuple) else parts[0]


def _all_whole(capture: Capture, index: torch.Tensor, factor: int, last: int, size: int | torch.SymInt) -> bool:
    """Whether no window `: index * factor + last` is cut off at `size`. Of a range that counts by 1 it is assumed."""
    taken = capture.explorers[-1].recorder.maker(index)
    numbers = taken.args[0] if taken is not None and taken.function is torch.select else None
    made = capture.explorers[-1].recorder.maker(numbers) if isinstance(numbers, torch.Tensor) else None
    if made is None or made.function is not torch.arange or len(made.args) < 3 or made.args[2] in (1, -1):
        return True
    _, end, step = cast("tuple[Any, ...]", made.args)
    inside = (end - 1) * factor + last <= size
    return step > 0 and (inside if isinstance(inside, bool) else constant_answer(inside) is True)


def _counted(capture: Capture, end: object) -> tuple[torch.Tensor, int, int] | None:
    """(i, 4, 2) for `i * 4 + 2`, where i is the index of a loop; None for other ends."""
    if not isinstance(end, torch.Tensor):
        return None
    if id(end) in capture.counters:
        return end, 1, 0
    call = capture.explorers[-1].recorder.maker(end)
    sides = call.args[:2] if call is not None else ()
    whole = next((one for one in sides if type(one) is int), 0)
    known = next((found for one in sides if (found := _counted(capture, one)) is not None), None)
    if call is None or known is None or not whole:
        return None
    base, factor, offset = known
    name = call.name.strip("_")
    if name in ("mul", "rmul") and whole > 0:
        return base, factor * whole, offset * whole
    sign = {"add": 1, "radd": 1, "sub": -1}.get(name, 0)
    return (base, factor, offset + sign * whole) if sign else None


def _with_number_ends(capture: Capture, index: object) -> object:
    """A slice with 0-d tensors as ends, as a slice with numbers; any other index as it is."""
    if not isinstance(index, slice):
        return index
    ends = (index.start, index.stop, index.step)
    return slice(*(as_number(capture, end) if isinstance(end, torch.Tensor) else end for end in ends))


class _IndexedByData:
    """Mixin in front of a container's class: indexing with a tensor or symbolic number is a chain of decisions."""

    def __getitem__(self, index: object) -> object:
        capture = current_capture()
        get: Callable[[object], object] = super().__getitem__  # type: ignore[misc]
        if capture is None or not capture.explorers or not isinstance(index, torch.Tensor | torch.SymInt):
            return get(index)
        known = static_value(capture, index)
        return get(decide_entry(capture, index, len(self)) if known is None else known)  # type: ignore[arg-type]


def container_mixin(cls: type) -> type | None:
    """What to put in front of a class of torch's containers; None for another class."""
    return _IndexedByData if cls in _CONTAINERS else None


def takes(target: torch.Tensor, index: object, value: object) -> bool:
    """Whether `written` knows this form of an index."""
    parts = _by_axis(index, target.dim())
    if parts is None or not all(_known(part) for part in parts):
        return False
    rest = [part for part in parts if not _is_number(part)]
    lists = [part for part in rest if isinstance(part, torch.Tensor)]
    ranges = [part for part in rest if isinstance(part, slice) and part != Whole]
    if lists:
        # Places first, and nothing bounded beside them. Flags take one value.
        alone = len(lists) == 1 and not ranges and rest[0] is lists[0]
        return alone and (_is_single(value) if _is_flags(lists[0]) else lists[0].dim() == 1)
    return True


def written(target: torch.Tensor, index: object, value: object) -> torch.Tensor:
    """The target with the value at the index, as a new tensor."""
    parts = _by_axis(index, target.dim())
    assert parts is not None
    axes = [axis for axis, part in enumerate(parts) if _is_number(part)]
    row, outer = target, []
    for axis in axes:
        place = _place(parts[axis], target.shape[axis], target.device)
        outer.append((axis, row, place))
        row = row.index_select(axis, place.reshape(1))
    for axis in reversed(axes):
        row = row.select(axis, 0)
    row = _in_row(row, [part for part in parts if not _is_number(part)], value)
    for axis in axes:
        row = row.unsqueeze(axis)
    for axis, around, place in reversed(outer):
        row = torch.where(_along(_positions(around, axis) == place, axis, around.dim()), row, around)
    return row if axes else row.clone()


def _in_row(row: torch.Tensor, rest: list[object], value: object) -> torch.Tensor:
    """What the rest of an index writes, after its whole numbers have named the row."""
    made = value.to(row.dtype) if isinstance(value, torch.Tensor) else torch.full_like(row, value)  # type: ignore[arg-type]
    if rest and isinstance(rest[0], torch.Tensor):
        return _at_places(row, rest[0], made, value)
    ranges = [(axis, part) for axis, part in enumerate(rest) if isinstance(part, slice) and part != Whole]
    inside = torch.ones((1,) * row.dim(), dtype=torch.bool, device=row.device)
    for axis, part in ranges:
        size = row.shape[axis]
        start = _place(0 if part.start is None else part.start, size)
        stop = size if part.stop is None else _place(part.stop, size)
        positions = _positions(row, axis)
        inside = inside & _along((positions >= start) & (positions < stop), axis, row.dim())
        if not _is_single(value):
            made = _moved(made, positions - start, axis, row.dim())
    return torch.where(inside, made, row) if ranges else made.expand(row.shape)


def _at_places(row: torch.Tensor, at: torch.Tensor, made: torch.Tensor, value: object) -> torch.Tensor:
    """What flags, or places of the first axis, write."""
    if _is_flags(at):
        flags = at.reshape(*at.shape, *(1 for _ in range(row.dim() - at.dim())))
        return torch.where(flags, made, row)
    # One place for each element, as `scatter` wants them, and without sizes: in a loop of the graph there are none.
    places = _along(at, 0, row.dim()) + torch.zeros_like(row[:1], dtype=torch.int64)
    if not isinstance(value, torch.Tensor):
        return row.scatter(0, places, value)  # type: ignore[call-overload]
    return row.scatter(0, places, torch.zeros_like(places, dtype=row.dtype) + made)


def _moved(value: torch.Tensor, places: torch.Tensor, axis: int, dims: int) -> torch.Tensor:
    """The value's rows along an axis, at the places that they are written to. What is elsewhere does not matter."""
    if value.dim() < dims:
        value = value.reshape(*(1 for _ in range(dims - value.dim())), *value.shape)
    # One row is appended: a value without any rows must still have one to gather.
    last = value.sum(axis, keepdim=True).to(value.dtype)
    padded = torch.cat([value, last], axis)
    highest = (as_tensor(value.shape[axis], torch.int64) - 1).clamp(min=0)
    return padded.index_select(axis, torch.minimum(places.clamp(min=0), highest))


def _by_axis(index: object, dims: int) -> list[object] | None:
    """The parts of an index, one for each axis; None where they cannot be told apart so."""
    parts = list(index) if isinstance(index, tuple) else [index]
    taken = sum(part.dim() if isinstance(part, torch.Tensor) and _is_flags(part) else 1 for part in parts)
    dots = [at for at, part in enumerate(parts) if part is Ellipsis]
    taken -= len(dots)
    if any(part is None or isinstance(part, bool) for part in parts) or len(dots) > 1 or taken > dims:
        return None
    at = dots[0] if dots else len(parts)
    return [*parts[:at], *[Whole] * (dims - taken), *parts[at + 1 :]]


def _known(part: object) -> bool:
    if isinstance(part, slice):
        return part.step in (None, 1) and all(end is None or _is_number(end) for end in (part.start, part.stop))
    return _is_number(part) or (isinstance(part, torch.Tensor) and not part.is_floating_point() and part.dim() > 0)


def _is_number(part: object) -> bool:
    if isinstance(part, torch.Tensor):
        return _is_whole_number(part)
    return isinstance(part, int | torch.SymInt) and not isinstance(part, bool)


def _is_flags(part: object) -> bool:
    return isinstance(part, torch.Tensor) and part.dtype is torch.bool


def _is_single(value: object) -> bool:
    """Whether a value is one number for all places."""
    return not isinstance(value, torch.Tensor) or value.dim() == 0


def _place(number: object, size: object, device: torch.device | None = None) -> torch.Tensor:
    """The place that a whole number names; negative ones count from the end."""
    place = as_tensor(number, torch.int64, device)
    return torch.where(place < 0, place + size, place)  # type: ignore[operator]


def _positions(tensor: torch.Tensor, axis: int) -> torch.Tensor:
    return torch.arange(tensor.shape[axis], device=tensor.device)


def _along(flags: torch.Tensor, axis: int, dims: int) -> torch.Tensor:
    return flags.reshape(*(-1 if at == axis else 1 for at in range(dims)))
