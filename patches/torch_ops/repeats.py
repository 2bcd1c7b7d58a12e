"""Repeats by a number, a size or counts, rolls by sizes, classes as vectors, and reductions of segments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import missing, op
from onnxpatch.formulas.symbolic import size_of_data, symbolic


def _blocks(x: Tensor) -> Tensor:
    """The sum of every three tokens."""
    length = x.shape[1]
    block = torch.arange(length) // 3
    return x.transpose(1, 2) @ torch.nn.functional.one_hot(block, (length + 2) // 3).to(x.dtype)


@op(
    "one_hot",
    name="one-hot-of-a-size",
    why="Eq(s27//4, 2): torch's one_hot takes a number of classes as a constant, that of the example",
    reason="shape|relative error",
    link="https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/Onehot.cpp",
    exporters=("dynamo",),
    tries=lambda batch, length: torch.randn(batch, length, 4),
    sizes=((2, 7), (3, 12), (1, 2)),
    case=_blocks,
    unchanged="fixed sizes",
)
def one_hot(input: Tensor, num_classes: Any = -1) -> Tensor:
    """Every class is compared with every element. A number of classes that is a constant is left to the exporter."""
    if not symbolic(num_classes):
        return NotImplemented
    return (input[..., None] == torch.arange(num_classes, device=input.device)).to(torch.int64)


@op(
    "repeat_interleave",
    name="repeat-by-counts",
    why="the exported graph compares every place with every count: 10,000 elements take 1.5 GB",
    link="https://github.com/pytorch/pytorch/issues/128505",
    tries=lambda batch: (torch.randn(batch, 3), torch.arange(batch) % 3),
    sizes=(4, 5, 2),
    case=lambda x, counts: x.repeat_interleave(counts, 0),
    leaner=("dynamo", "trace"),
)
def repeat_by_counts(
    input: Tensor, repeats: object = None, dim: int | None = None, *, output_size: object = None
) -> Tensor:
    """The indices are the running sum of a 1 at the end of each element; see `formulas.repeats`."""
    if repeats is None:  # repeat_interleave(counts), which returns indices
        return sources(input.reshape(-1), output_size)  # in the file, `squeeze()` makes a number of one element
    if not isinstance(repeats, Tensor) or repeats.dim() == 0 or repeats.shape[0] == 1:
        return NotImplemented
    source, dim = (input.flatten(), 0) if dim is None else (input, dim % input.dim())
    return repeated(source, repeats.reshape(-1), dim, output_size)


@op(
    "repeat_interleave",
    why="Unsupported: ONNX export of operator repeat_interleave along dimension with unknown input size; "
    "with a negative dim, other constants of that value change too: a reshape to -1 becomes one to 1",
    reason="shape",
    link="https://github.com/pytorch/pytorch/issues/128505",
    exporters=("trace",),
    tries=lambda batch: torch.randn(batch, 6, 4),
    sizes=(2, 5, 1),
    case=lambda x: x.repeat_interleave(2, -1).reshape(x.shape[0], 2, -1),
)
def repeat_interleave(
    input: Tensor, repeats: object = None, dim: int | None = None, output_size: object = None
) -> Tensor:
    """Repeats by expand and reshape: (…, n, …) -> (…, n, 1, …) -> (…, n * repeats, …)."""
    if repeats is None or (isinstance(repeats, Tensor) and repeats.dim() > 0 and repeats.shape[0] != 1):
        return NotImplemented  # one count for each element
    return _repeated(input, repeats.reshape(()) if isinstance(repeats, Tensor) else repeats, dim)


def _prompts(text: Tensor, film: Tensor) -> tuple[Tensor, Tensor]:
    """The text of each film, and a mask's sizes, once for each frame."""
    frames = film.shape[1]
    return text.repeat_interleave(frames, dim=0, output_size=text.shape[0] * frames), text.repeat_interleave(frames, -1)


@op(
    "repeat_interleave",
    name="repeat-by-a-size",
    why="invalid expand shape: where the count is a size, the exporter repeats the axis before the one asked for",
    reason="invalid expand shape|shape|broadcast",
    link="https://github.com/microsoft/onnxscript/blob/main/onnxscript/function_libs/torch_lib/ops/core.py",
    exporters=("dynamo",),
    tries=lambda n, frames: (torch.randn(n, 3, 4), torch.randn(n, frames)),
    sizes=((2, 3), (5, 1), (3, 4)),
    case=_prompts,
    unchanged="fixed sizes",
)
def repeat_by_a_size(
    input: Tensor, repeats: object = None, dim: int | None = None, *, output_size: object = None
) -> Tensor:
    """The same; a count that is a constant is left to the exporter."""
    if isinstance(repeats, Tensor) or not symbolic(repeats):
        return NotImplemented
    return _repeated(input, repeats, dim)


_FEW = 16  # operands of a Concat


def _repeated(input: Tensor, repeats: Any, dim: int | None) -> Tensor:
    source, dim = (input.flatten(), 0) if dim is None else (input, dim % input.dim())
    if isinstance(repeats, int) and 0 < repeats <= _FEW:  # onnxruntime's Expand is slow along a short last axis
        return torch.cat([source.unsqueeze(dim + 1)] * repeats, dim + 1).flatten(dim, dim + 1)
    times = [-1] * (source.dim() + 1)
    times[dim + 1] = repeats
    return source.unsqueeze(dim + 1).expand(times).flatten(dim, dim + 1)


@op(
    "one_hot",
    name="one-hot-of-all-classes",
    why="OneHot: Depth is negative; one_hot without a number of classes",
    reason="Depth|num_classes|one_hot|data-dependent|Could not guard|-1",
    tries=lambda n: torch.arange(n) % 7,
    case=lambda x: functional.one_hot(x),
)
def one_hot_of_all(input: Tensor, num_classes: Any = -1) -> Tensor:
    """As many classes as the largest number asks for."""
    if not isinstance(num_classes, int) or num_classes != -1:
        return NotImplemented
    count = size_of_data(input.reshape(-1).amax(0) + 1)
    return (input.unsqueeze(-1) == torch.arange(count, device=input.device)).to(torch.int64)


# ------------------------------------------------------------------ segments
_EMPTY = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


def _segments(n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n + 3, 2), torch.tensor([2, 0, n, 1])


def _of_segments(x: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    ends = torch.cat((lengths.new_zeros(1), lengths.cumsum(0)))
    one = (
        torch.segment_reduce(x, "max", lengths=lengths, initial=1),
        torch.segment_reduce(x, "mean", lengths=lengths + 0),
    )
    return *one, torch.segment_reduce(x, "sum", offsets=ends), torch.segment_reduce(x, "min", offsets=ends)


@op("segment_reduce", why=missing("aten::segment_reduce", "aten::_segment_reduce"), tries=_segments, case=_of_segments,
    beside=("scatter-reduce",))  # fmt: skip
def segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: float | None = None,
) -> Tensor:  # fmt: skip
    """Each segment's sum, mean, product or extreme, along the first axis."""
    given = lengths if offsets is None else offsets
    if axis != 0 or given is None or given.dim() != 1:
        return NotImplemented
    counts = (given if offsets is None else given[1:] - given[:-1]).to(torch.int64)
    rows = data.reshape(data.shape[0], -1)
    places = sources(counts, data.shape[0]).unsqueeze(1).expand(rows.shape)
    empty = _EMPTY[reduce] if initial is None else initial
    # One more, for rows that are in no segment.
    start = torch.full_like(torch.cat((counts, counts[:1])).to(data.dtype).unsqueeze(1) + rows[:1] * 0, empty)
    kind = {"max": "amax", "min": "amin", "mean": "sum"}.get(reduce, reduce)
    found = torch.scatter_reduce(start, 0, places, rows, kind)[:-1]
    if reduce == "mean":
        # A mean over nothing is NaN, or the given one.
        count = counts.to(data.dtype).unsqueeze(1)
        found = torch.where(count > 0, found / count, found if initial is not None else found / count)
    return found.reshape([-1, *data.shape[1:]])


def repeated(source: Tensor, counts: Tensor, dim: int, total: object = None) -> Tensor:
    """source.repeat_interleave(counts, dim, output_size=total). counts: (source.shape[dim],), integers."""
    return source.index_select(dim, sources(counts, total))


def sources(counts: Tensor, total: Any = None) -> Tensor:
    """The index of the element at each place of the result: int64 (sum of counts,).

    A 1 is added at the place where each element ends (several at one place if counts are 0). The running sum of these
    is the number of elements that have ended: the index.
    """
    counts = counts.to(torch.int64)
    total = size_of_data(counts.sum()) if total is None else total
    # One place more: the last element ends at `total`.
    marks = torch.zeros([total + 1], dtype=torch.int64, device=counts.device)
    marks = marks.scatter_add(0, counts.cumsum(0), torch.ones_like(counts))
    return marks.cumsum(0).narrow(0, 0, total)


def _shifted(x: Tensor) -> tuple[Tensor, ...]:
    """Shifts in a list, as MONAI's Swin has them; beside a fixed one; by more than the size."""
    half = x.shape[1] // 2
    moved = torch.roll(x, [-shift for shift in (half, x.shape[2] // 2)], [1, 2])
    return moved, x.roll(half, 1), moved.roll((1, half), dims=(2, 1)), x.roll(-half - x.shape[1])


def _by_sizes(function: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return any(not isinstance(one, int) for one in _each(kwargs["shifts"] if "shifts" in kwargs else args[1]))


def _each(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [] if value is None else [value]


@op(
    "roll",
    name="roll-by-sizes",
    why="Failed to export a node onnx::Neg (in list node int[]): torch.roll takes constants for its shifts",
    reason="list node|onnx::Constant|relative error|constant|attribute",
    link="https://github.com/Project-MONAI/MONAI/blob/dev/monai/networks/nets/swin_unetr.py",
    tries=lambda b, h, w: torch.randn(b, h, w, 3),
    sizes=((2, 8, 6), (3, 5, 9), (1, 3, 4), (2, 12, 1)),
    calls=_by_sizes,
    case=_shifted,
    beside=("composites",),
    unchanged=lambda x: x.roll((1, -1), (1, 2)),
)
def roll_by_sizes(original: Callable[..., Tensor], input: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    """Every entry of an axis is taken from its own place. Fixed shifts are left to the exporter."""
    axes = _each(dims)
    if not axes:
        return roll_by_sizes(original, input.flatten(), shifts, 0).reshape(input.shape)
    for axis, shift in zip(axes, _each(shifts), strict=True):
        if not symbolic(shift) and isinstance(shift, int):
            input = original(input, shift, axis)
            continue
        size = input.shape[axis]
        source = torch.arange(size, device=input.device) - shift % size
        input = input.index_select(axis, torch.where(source < 0, source + size, source))
    return input
