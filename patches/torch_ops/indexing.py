"""Axes, slices and index tensors that count from the end, axes of one element, and parts that are assigned to."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.symbolic import as_tensor, example_of, symbolic


def _turned(x: Tensor) -> tuple[Tensor, ...]:
    return (x.permute(0, -1, 1), torch.permute(x, (-1, 0, -2)), x.movedim(-1, -3), torch.moveaxis(x, (0, -1), (-1, 0)))


@op(
    "permute",
    "movedim",
    "moveaxis",
    name="negative-axes",
    why="Node (/Transpose) Op (Transpose) Invalid attribute perm: the exported file does not load",
    reason="perm",
    link="https://github.com/pytorch/pytorch/issues/97296",
    exporters=("trace",),
    tries=lambda b, n: torch.randn(b, n, 4),
    sizes=((2, 3), (3, 5), (1, 1)),
    case=_turned,
)
def permute(original: Callable[..., Tensor], x: Tensor, *axes: object, **named: object) -> Tensor:
    """Makes the call with axes counted from the front."""
    rank = x.dim()
    if "permute" in original.__name__:
        order = _numbers(named["dims"] if "dims" in named else axes[0] if len(axes) == 1 else axes)
    else:
        source, destination = (_numbers(one) for one in (*axes, *named.values()))
        order = _moved(rank, [a % rank for a in source], [a % rank for a in destination])
    whole = [axis % rank for axis in order]
    return NotImplemented if list(order) == whole and "permute" in original.__name__ else x.permute(whole)


def _numbers(axes: Any) -> list[int]:
    return list(axes) if isinstance(axes, tuple | list | torch.Size) else [axes]


def _moved(rank: int, source: list[int], destination: list[int]) -> list[int]:
    """`movedim` as a permutation."""
    place = dict(zip(destination, source, strict=True))
    rest = iter(axis for axis in range(rank) if axis not in source)
    # The axes that are not named keep their order.
    return [place[axis] if axis in place else next(rest) for axis in range(rank)]


class _Sine(torch.nn.Module):
    """DETR's sine embedding: rows and columns of a map that was halved three times, divided by the last of them."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = x[:, :, ::2, ::2]
        batch, _, height, width = x.shape
        rows = torch.arange(1, height + 1, dtype=x.dtype)[None, :, None].expand(batch, height, width)
        columns = torch.arange(1, width + 1, dtype=x.dtype)[None, None, :].expand(batch, height, width)
        rows = rows / (rows[:, -1:, :] + 1e-6)
        columns = columns / (columns[:, :, -1:] + 1e-6)
        return x * (rows + columns)[:, None]


def _takes_last(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    return any(_is_last(item) for item in _items(args[1]))


@op(
    "__getitem__",
    name="last-slice",
    why="The size of tensor a must match the size of tensor b (Min(1, Max(0, ...))); The following inconsistencies "
    "were found: Eq(A, Max(0, A - Max(0, A - 1)))",
    link="https://github.com/huggingface/transformers/pull/34393",
    # only these: indices into complex tensors are for the patch of complex numbers
    calls=_takes_last,
    exporters=("dynamo",),
    reason="inconsistencies were found",
    # 33 and 52 do not halve evenly three times.
    tries=lambda b, h, w: torch.randn(b, 3, h, w),
    sizes=((2, 192, 256), (1, 33, 52), (3, 160, 64)),
    case=_Sine,
    unchanged="fixed sizes",
)
def last_slice(original: Callable[..., Tensor], tensor: Tensor, index: object) -> Tensor:
    """Gives `tensor[..., -1:, ...]` a length of 1, whatever the formula of the axis' size. An empty axis is refused."""
    items = _items(index)
    rest, axis, kept = sum(_axes(item) for item in items), 0, []
    given = tensor
    for item in items:
        if _is_last(item) and symbolic(tensor.shape[axis]):
            # A selected axis is gone, and one put in has the length 1 by itself.
            tensor, item = tensor.select(axis, -1).unsqueeze(axis), slice(None)
        kept.append(item)
        # `...` stands for the axes that no other item uses.
        axis += tensor.dim() - rest if item is Ellipsis else _axes(item)
    return NotImplemented if tensor is given else original(tensor, tuple(kept))


def _items(index: object) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _is_last(item: object) -> bool:
    return isinstance(item, slice) and isinstance(item.start, int) and item.start == -1 and item.stop is None


def _axes(item: object) -> int:
    """How many axes of the tensor an item of an index uses."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return item.dim() if isinstance(item, Tensor) and item.dtype == torch.bool else 1


def _bias(past: Tensor, x: Tensor) -> Tensor:
    """MPT's bias of positions, the same for each query: cut to the queries and keys that there are."""
    keys = torch.cat([past, x], dim=1)
    bias = torch.arange(12, dtype=x.dtype).reshape(1, 12)
    bias = bias[max(0, bias.shape[0] - keys.shape[1] - x.shape[1]) :, max(0, 12 - keys.shape[1]) :]
    return x @ keys.transpose(1, 2) + bias


def _takes_rest(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    return isinstance(args[1], tuple) and any(map(_starts_at_size, args[1]))


@op(
    "__getitem__",
    name="single-axis",
    why="The following inconsistencies were found: Eq(s70 + Max(0, -s15 - 2*s70 + 1), 1) is inconsistent",
    reason="inconsisten|Max",
    link="https://github.com/pytorch/pytorch/issues/132174",
    calls=_takes_rest,
    exporters=("dynamo",),
    tries=lambda past, new: (torch.randn(2, past, 4), torch.randn(2, new, 4)),
    sizes=((3, 4), (5, 1), (2, 6)),
    case=_bias,
    unchanged="fixed sizes",
)
def single_axis(original: Callable[..., Tensor], tensor: Tensor, index: tuple[Any, ...]) -> Tensor:
    """Takes the whole axis if it has one element, and the slice has that element in the example."""
    # These move the axes that the entries behind them are of.
    if Ellipsis in index or None in index or not all(isinstance(item, slice) for item in index):
        return NotImplemented
    kept = [slice(None) if _takes_one(tensor, axis, item) else item for axis, item in enumerate(index)]
    return NotImplemented if kept == list(index) else original(tensor, tuple(kept))


def _takes_one(tensor: Tensor, axis: int, item: slice) -> bool:
    size = tensor.shape[axis]
    # At other sizes the slice may be empty in eager; what is made of it would not broadcast there.
    return isinstance(size, int) and size == 1 and _starts_at_size(item) and example_of(item.start) == 0


def _starts_at_size(item: object) -> bool:
    return isinstance(item, slice) and item.stop is None and item.step is None and symbolic(item.start)


class _Token(torch.nn.Module):
    """A parameter in the first place of each row, a row in some places of all, and numbers by other indices."""

    def __init__(self) -> None:
        super().__init__()
        self.token = torch.nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        y, last = x.clone(), torch.tensor([1, 0], dtype=torch.int32)
        y[:, 0] = self.token
        y[:, 1:, :2] = x[:1, :1, :2]
        y[-1, ..., 2:] = x[0, :, 2:]
        y[1, 1, 1] = x[0, :1, 0]
        y[..., last.long()] = y[..., last.long()] + 1
        y[last] = y[last] * 2
        y[-1, : x.shape[0] - 2] = 3.0
        return y


@op(
    "__setitem__",
    name="assigned-parts",
    why="Expand: invalid expand shape: y[:, 0] = row expands the row to as many as the example has; y[..., index] and "
    "an index of int32 make a file that does not load",
    reason="expand shape|is invalid|is not supported|Error Node",
    link="https://github.com/pytorch/pytorch/blob/main/torch/csrc/autograd/python_variable_indexing.cpp",
    exporters=("trace",),
    tries=lambda b: torch.randn(b, 4, 3),
    sizes=(5, 7, 2),
    case=_Token,
    unchanged=lambda x: x.clone().index_fill_(1, torch.tensor([0]), 2.0),
)
def assigned(original: Callable[..., None], tensor: Tensor, index: object, value: Any) -> object:
    """Copies into the part, which spreads the value over it at any size; index tensors are made whole numbers."""
    items = _items(index)
    if any(isinstance(item, Tensor) and item.dim() for item in items):
        return _assigned_rows(original, tensor, items, value)
    basic = all(item is None or item is Ellipsis or isinstance(item, slice) or _is_place(item) for item in items)
    if basic and (slices := _slices_alone(items, value)):
        original(tensor, slices, value)
        return None
    if not basic or not isinstance(value, Tensor) or not value.dim():
        return NotImplemented
    part = tensor[items]
    if list(map(example_of, value.shape)) == list(map(example_of, part.shape)):
        return NotImplemented
    # Leading axes of one element fall away, as in torch.
    part.copy_(value.reshape(value.shape[max(0, value.dim() - part.dim()) :]))
    return None


def _slices_alone(items: tuple[Any, ...], value: object) -> tuple[object, ...]:
    """A slice for each place, where a number goes to a part whose size is computed; else nothing.

    The exporter reshapes the number to the part's shape, which the runtime cannot where a size of it is 0.
    """
    ends = [end for one in items if isinstance(one, slice) for end in (one.start, one.stop)]
    computed = isinstance(value, int | float) and any(isinstance(end, Tensor) for end in ends)
    if not computed or not any(map(_is_place, items)):
        return ()
    return tuple(slice(one, one + 1 or None) if _is_place(one) else one for one in items)


def _is_place(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)


def _assigned_rows(original: Callable[..., object], tensor: Tensor, items: tuple[Any, ...], value: Any) -> object:
    """With int32 as int64, and places along one axis behind several others by `index_copy_`."""
    wide = _wide(items)
    places, axis = wide[-1], tensor.dim() - 1
    if axis > 1 and isinstance(places, Tensor) and places.dtype == torch.int64 and _along_last(wide, tensor.dim()):
        places = torch.remainder(places, tensor.shape[-1])
        part = tensor.index_select(axis, places)
        filled = value.to(tensor.dtype).expand_as(part) if isinstance(value, Tensor) else torch.full_like(part, value)
        tensor.index_copy_(axis, places, filled)
        return None
    return original(tensor, wide, value) if _of_int32(original, (tensor, items), {}) else NotImplemented


def _along_last(items: tuple[Any, ...], rank: int) -> bool:
    """Whether the items are places along the last axis, behind all of the others."""
    *before, places = items
    whole = all(item is Ellipsis or (isinstance(item, slice) and item == slice(None)) for item in before)
    return whole and places.dim() == 1 and (Ellipsis in before or len(items) == rank)


def _of_int32(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    return any(isinstance(item, Tensor) and item.dtype == torch.int32 for item in _items(args[1]))


def _regions(x: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers of the regions of shifted windows, which are no larger than the rows and columns are."""
    made, ends = torch.zeros(x.shape), []
    for size in x.shape[1:]:
        window = torch.sym_min(size, 4)
        shift = window // 2
        ends.append((slice(-window), slice(-window, -shift), slice(-shift, None)))
    for number, (rows, columns) in enumerate(itertools.product(*ends)):
        made[:, rows, columns] = number
    flags, half = x > 0, x.shape[2] // 2
    flags[:, :, half:] = True
    return made + x, flags


def _by_sizes(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    ranges = [item for item in _items(args[1]) if isinstance(item, slice) and item.step is None]
    ends = [end for item in ranges for end in (item.start, item.stop)]
    single = isinstance(args[2], int | float)
    return single and len(ranges) == len(_items(args[1])) and any(isinstance(end, torch.SymInt) for end in ends)


@op(
    "__setitem__",
    name="ranges-of-sizes",
    why="made[:, -n:, -n:] = 1 with n from a size: each slice has a size that nothing is known of, and the questions "
    "about it, and a ScatterND for each, take minutes in 3-D",
    exporters=("dynamo",),
    calls=_by_sizes,
    tries=lambda h, w: torch.randn(1, h, w),
    sizes=((7, 10), (3, 9), (12, 2)),
    case=_regions,
    leaner=("dynamo",),
    beside=("bools-chosen",),
    unchanged=lambda x: x.clone().fill_(1.0),
)
def ranges_of_sizes(original: object, tensor: Tensor, index: object, value: float) -> None:
    """Writes the whole tensor: the number where all places are in their ranges, its own elements elsewhere."""
    inside = torch.ones((), dtype=torch.bool, device=tensor.device)
    for axis, item in enumerate(_items(index)):
        if item != slice(None):
            size = tensor.shape[axis]
            places = torch.arange(size, device=tensor.device)
            for end, reaches in ((item.start, places.ge), (item.stop, places.lt)):
                if end is not None:
                    place = as_tensor(end, torch.int64, tensor.device)
                    within = reaches(torch.where(place < 0, place + size, place))
                    inside = inside & within.reshape(-1, *(1,) * (tensor.dim() - 1 - axis))
    tensor.copy_(torch.where(inside, tensor.new_full((), value), tensor))


def _by_int32(x: Tensor) -> tuple[Tensor, Tensor]:
    places, y = torch.tensor([1, 0], dtype=torch.int32), x.clone()
    y[:, places] = 2.0
    return x[:, places], y


@op(
    "__getitem__",
    "__setitem__",
    name="places-of-int32",
    why="Type 'tensor(int32)' of input parameter of operator (Transpose, GatherND, ...) is invalid: x[int32 tensor]",
    reason="is invalid|is not supported|bound to different types",
    link="https://onnx.ai/onnx/operators/onnx__GatherND.html",
    exporters=("dynamo",),
    calls=_of_int32,
    tries=lambda b: torch.randn(b, 4, 3),
    sizes=(5, 7, 2),
    case=_by_int32,
)
def places_of_int32(original: Callable[..., Any], tensor: Tensor, index: object, *value: Any) -> Any:
    """The same places as int64."""
    return original(tensor, _wide(_items(index)), *value)


def _wide(items: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(one.long() if isinstance(one, Tensor) and one.dtype == torch.int32 else one for one in items)


def _last_token(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The last step of each row by its mask. For an empty row the index is -1, the last step of all."""
    rows = torch.arange(x.shape[0])
    return x[rows, mask.sum(1) - 1], x.transpose(1, 2)[rows[:, None], :, mask - 2]


def _masked() -> list[tuple[Tensor, Tensor]]:
    made = []
    for b, n in ((2, 5), (3, 9), (1, 4)):
        mask = torch.ones(b, n, dtype=torch.long)
        mask[-1] = 0
        made.append((torch.randn(b, n, 3), mask))
    return made


def _several(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    if not isinstance(args[1], tuple):
        return False
    # A single index tensor becomes a Gather, which counts negative numbers from the end by itself.
    return sum(map(_whole, args[1])) > 1 and not any(item is None or _flags(item) for item in args[1])


def _whole(item: object) -> bool:
    return isinstance(item, Tensor) and item.dtype in (torch.int64, torch.int32)


@op(
    "__getitem__",
    name="negative-indices",
    why="The TorchScript exporter makes one index of several by arithmetic, which a negative one spoils",
    reason="relative error",
    link="https://github.com/pytorch/pytorch/pull/21716",
    exporters=("trace",),
    calls=_several,
    tries=_masked,
    case=_last_token,
)
def negative_indices(original: Callable[..., Tensor], tensor: Tensor, index: tuple[Any, ...]) -> Tensor:
    """Indexes with indices counted from the front."""
    axis, kept = 0, []
    for item in index:
        # The remainder has the sign of the size: -1 becomes size - 1, and 0 ... size - 1 stay.
        kept.append(torch.remainder(item, tensor.shape[axis]) if _whole(item) else item)
        # `...` takes the axes that the other items leave.
        axis += 1 if item is not Ellipsis else tensor.dim() - len(index) + 1
    return original(tensor, tuple(kept))


def _flags(item: object) -> bool:
    return isinstance(item, bool) or (isinstance(item, Tensor) and item.dtype in (torch.bool, torch.uint8))


@op(
    "unravel_index",
    name="unravel-negative-index",
    why="whole numbers differ: the quotients of negative ones are rounded towards zero in the graph",
    reason="flags differ",
    link="https://github.com/pytorch/pytorch/issues/44692",
    exporters=("trace",),
    tries=lambda places: torch.tensor(places),
    sizes=(([1, -7, 13],), ([-20, -1, 0, 19, -6],), ([4],)),
    case=lambda x: torch.unravel_index(x, (4, 5)),
)
def unravel_index(original: object, indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """The places along each axis; a negative index counts from the end."""
    if isinstance(shape, Tensor) and shape.dim():
        return NotImplemented
    sizes = list(shape) if isinstance(shape, list | tuple) else [shape]
    places: list[Tensor] = []
    for size in reversed(sizes):
        place = torch.remainder(indices, size)
        places.insert(0, place)
        indices = torch.div(indices - place, size, rounding_mode="trunc")  # exact
    return tuple(places)


def _from_data(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    return isinstance(kwargs.get("start", args[2] if len(args) > 2 else None), Tensor)


@op(
    "narrow",
    name="narrow-from-data",
    why="PendingUnbackedSymbolNotFound under dynamo; an empty slice for a negative start under trace",
    reason="Unbacked|DataDependent|shape|not run",
    link="https://docs.pytorch.org/docs/stable/generated/torch.narrow.html",
    calls=_from_data,
    tries=lambda n, start: (torch.randn(n, 4), torch.tensor(start)),
    sizes=((4, 1), (7, -2), (3, 0)),
    case=lambda x, start: x.narrow(0, start, 2) * torch.narrow(x, 1, start.abs(), 2).sum(),
)
def narrow(original: object, input: Tensor, dim: int, start: Tensor, length: Any) -> Tensor:
    """The rows by their indices, counted from the front. A start that is a size under trace is left to torch."""
    if symbolic(start):
        return NotImplemented
    start = start.reshape(())
    start = torch.where(start < 0, start + input.shape[dim], start)
    return input.index_select(dim, start + torch.arange(length, device=input.device))
