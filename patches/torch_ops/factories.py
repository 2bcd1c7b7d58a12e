"""Tensors made of sizes or of the elements of one axis: torch.tensor of a list, linspace, eye, full, arange, grids."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import missing, op, untraced
from onnxpatch.decisions.ask import calling_frame
from onnxpatch.decisions.if_rules.selected_numbers import where_one
from onnxpatch.formulas.calls import listed
from onnxpatch.formulas.elementary import fractional
from onnxpatch.formulas.symbolic import Array, as_float, as_tensor, symbolic, whole_of
from onnxpatch.patching.proof import pairs


def _sizes(x: Tensor) -> Tensor:
    height, width = x.shape[1:3]
    sizes = torch.as_tensor([(height, width), (height // 2, width // 2)], dtype=torch.long)
    middle = torch.tensor([height / 2, 1.0])
    return sizes.prod(1).cumsum(0) + x.mean() + middle[None]


@op(
    "tensor",
    "as_tensor",
    name="tensor-of-sizes",
    why="torch.tensor([height, width]) of dynamic sizes keeps the traced ones: Converting a tensor to a Python integer",
    reason="static shape|relative error",
    link="https://github.com/pytorch/pytorch/pull/28713",
    tries=lambda h, w: torch.randn(2, h, w),
    sizes=((4, 6), (9, 3), (2, 11)),
    case=_sizes,
    unchanged="fixed sizes",
)
def tensor_of_sizes(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Stacks nested lists that have sizes in them, so that the sizes stay dynamic."""
    # Lists of plain numbers are constants, and stay with torch.
    return _stacked(data, dtype or _dtype_of(data), device) if _holds_size(data) else NotImplemented


op(
    "Tensor.new_tensor",
    name="new-tensor-of-sizes",
    why="x.new_tensor([width, height]) of dynamic sizes keeps the traced ones: Converting a tensor to a Python integer",
    reason="static shape|relative error",
    link="https://github.com/pytorch/pytorch/pull/28713",
    exporters=("trace",),
    tries=lambda h, w: torch.randn(2, h, w),
    sizes=((4, 6), (9, 3), (2, 11)),
    case=lambda x: x.sum() / x.new_tensor([x.shape[2], x.shape[1] / 2]) + x.long().new_tensor(x.shape[1]),
    unchanged="fixed sizes",
    to=lambda x, data, dtype=None, device=None: (
        _stacked(data, dtype or x.dtype, device or x.device) if _holds_size(data) else NotImplemented
    ),
)


def _holds_size(data: object) -> bool:
    if isinstance(data, list | tuple):
        return whole_of(data) is not None or any(_holds_size(inner) for inner in data)
    return symbolic(data) or isinstance(data, Array)


def _dtype_of(data: object) -> torch.dtype:
    if isinstance(data, list | tuple):
        return functools.reduce(torch.promote_types, map(_dtype_of, data))
    if isinstance(data, Array):
        return data.tensor.dtype
    if isinstance(data, Tensor):
        # In eager, a number computed from sizes is a Python float.
        return torch.get_default_dtype() if data.dtype.is_floating_point else data.dtype
    whole = isinstance(data, int | torch.SymInt)
    return torch.bool if isinstance(data, bool) else torch.int64 if whole else torch.get_default_dtype()


def _stacked(data: Any, dtype: torch.dtype, device: Any) -> Tensor:
    whole = whole_of(data)
    if whole is not None:  # numbers.tolist(), of any length
        return whole.to(device=device, dtype=dtype)
    if isinstance(data, list | tuple):
        return torch.stack([_stacked(inner, dtype, device) for inner in data])
    data = data.tensor if isinstance(data, Array) else data
    return as_tensor(data, dtype, device)


def _positions(x: Tensor) -> Tensor:
    n = x.shape[1]
    fixed = torch.linspace(0.5, 2.5, 1)  # one step by a number: the exporter's is NaN as well
    middle = torch.zeros(1) if n == 1 else torch.linspace(-1, 1, n)
    count: Any = torch.ones_like(x[0, :, 0]).sum().long()
    counted = torch.linspace(0, 3, count)
    scaled = torch.linspace(-1, 1, steps=n)[:, None] * torch.linspace(0.5, n - 0.5, n)[:, None]
    return x * middle[:, None] + scaled + counted[:, None] + fixed


@op(
    "linspace",
    why="Received user-specified dim hint Dim.DYNAMIC, but tracing inferred a static shape: linspace pins its steps; "
    "the TorchScript exporter's linspace of one step is NaN",
    reason="static shape|non-finite|data-dependent",
    link="https://github.com/pytorch/pytorch/issues/127396",
    # The last one has a single step, for which the exporter divides by 0.
    tries=lambda b, n: torch.randn(b, n, 3),
    sizes=((2, 5), (1, 9), (3, 1)),
    case=_positions,
    unchanged=lambda x: x + torch.linspace(-1, 1, 3),
)
def linspace(start: Any, end: Any, steps: Any, **kwargs: Any) -> Tensor:
    """Computes linspace with dynamic steps from both ends, as torch does, so that both ends are exact.

    In `zeros(1) if n == 1 else linspace(-1, 1, n)`, no exporter asks again whether n is 1: both are in the graph.
    """
    if not symbolic(steps) and not isinstance(steps, Tensor):  # a tensor is a number that data decides
        return _spaced(start, end, steps, **kwargs) if steps == 1 else NotImplemented
    frame, spaced = calling_frame(1), _spaced(start, end, steps, **kwargs)
    alone = None if frame is None else where_one(frame, steps)
    return spaced if alone is None else torch.where(torch.ones_like(spaced).sum() == 1, alone, spaced)


@op(
    "linspace",
    name="linspace-of-whole-numbers",
    why="dtype float32, eager has int64: torch.linspace between tensors loses its dtype",
    reason="dtype",
    exporters=("trace",),
    tries=lambda n: torch.randn(n) * 9,
    case=lambda x: torch.linspace(x[0], 9, 5, dtype=torch.int64) + torch.linspace(-9, x.sum(), 5, dtype=torch.int32),
    unchanged=lambda x: torch.linspace(x[0], x[-1], 5) + torch.linspace(-9, 4, 5, dtype=torch.int64),
)
def linspace_of_whole_numbers(start: Any, end: Any, steps: Any, **kwargs: Any) -> Tensor:
    """The numbers between two in float64, cut off."""
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    tensors = any(isinstance(one, Tensor) for one in (start, end))
    return _spaced(start, end, steps, **kwargs) if tensors and not dtype.is_floating_point else NotImplemented


def _spaced(start: Any, end: Any, steps: Any, **kwargs: Any) -> Tensor:
    made = {key: value for key, value in kwargs.items() if key in ("dtype", "device") and value is not None}
    dtype = made.get("dtype", torch.get_default_dtype())
    ticks = torch.arange(steps, device=made.get("device"))
    # Counted in the graph: a Python number would fix the steps at the example's.
    last = torch.ones_like(ticks).sum() - 1
    wide, sizes = dtype if dtype.is_floating_point else torch.float64, (Tensor, torch.SymInt, torch.SymFloat)
    given = (start, end)  # a number stays one
    start, end = (as_tensor(one, dtype, ticks.device).to(wide) if isinstance(one, sizes) else one for one in given)
    # At least 1: a single step would be 0 / 0.
    step = (end - start) / last.clamp(min=1).to(wide)
    rising = start + step * ticks.to(wide)
    falling = end - step * (last - ticks).to(wide)
    return torch.where(ticks * 2 < last + 1, rising, falling).to(dtype)


def _diagonal(x: Tensor) -> Tensor:
    scores = x @ x.transpose(1, 2)
    return scores.masked_fill(torch.eye(x.shape[1], dtype=torch.bool), 0.0)


@op(
    "eye",
    why="NOT_IMPLEMENTED: Could not find an implementation for EyeLike(9), for an identity matrix of bools",
    reason="Could not find an implementation for EyeLike",
    link="https://github.com/pytorch/pytorch/issues/124279",
    exporters=("trace",),
    tries=lambda b, n: torch.randn(b, n, 3),
    sizes=((2, 5), (1, 9)),
    case=_diagonal,
)
def eye(n: Any, m: Any = None, **kwargs: Any) -> Tensor:
    """Compares row and column indices."""
    device = kwargs.get("device")
    rows, columns = torch.arange(n, device=device), torch.arange(n if m is None else m, device=device)
    return (rows[:, None] == columns).to(kwargs.get("dtype") or torch.get_default_dtype())


def _emptied(x: Tensor) -> tuple[Tensor, Tensor]:
    scores = x @ x.transpose(0, 1)
    return scores.fill_diagonal_(-9.0).softmax(1), (x > 0).fill_diagonal_(True)


@op(
    "Tensor.fill_diagonal_",
    name="filled-diagonal",
    why=f"{missing('aten::fill_diagonal')}; under dynamo its rows are those of the example",
    reason="fill_diagonal|static shape",
    tries=lambda n, m: torch.randn(n, m),
    sizes=((4, 5), (1, 3), (7, 2)),
    case=_emptied,
)
def filled_diagonal(input: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """A matrix, itself written, with one value where row and column are the same."""
    if input.dim() != 2 or wrap:
        return NotImplemented
    places = eye(*input.shape, dtype=torch.bool, device=input.device)
    if input.dtype == torch.bool:
        return input.logical_or_(places) if fill_value else input.logical_and_(~places)
    return input.masked_fill_(places, fill_value)


def _corners(x: Tensor) -> tuple[Tensor, Tensor]:
    rows, columns = x.shape
    return torch.triu_indices(rows, rows, 1) + rows, x[tuple(torch.tril_indices(rows, columns, -1))]


@op(
    "triu_indices",
    "tril_indices",
    why=f"{missing('aten::triu_indices')}; under dynamo their number is that of the example",
    reason="tri._indices|static shape",
    tries=lambda n, m: torch.randn(n, m),
    sizes=((4, 5), (2, 3), (7, 3)),
    case=_corners,
)
def triangle_indices(
    original: Callable[..., Tensor],
    row: Any,
    col: Any,
    offset: int = 0,
    *,
    dtype: torch.dtype = torch.int64,
    **more: Any,
) -> Tensor:
    """Rows and columns of the places on one side of a diagonal."""
    ahead = torch.arange(col, device=more.get("device")) - torch.arange(row, device=more.get("device"))[:, None]
    return (ahead >= offset if original is torch.triu_indices else ahead <= offset).nonzero().T.to(dtype)


def _filled(x: Tensor) -> Tensor:
    ids = torch.full((x.shape[0], 1), 2)
    counts = torch.full((x.shape[0], 2), x.shape[1])
    return x.gather(1, ids) + torch.full(x.shape[:1], True)[:, None].int() + x.gather(1, counts - 4)


@op(
    "full",
    why="torch.full of an integer or a bool comes out as float: Type 'tensor(float)' of input parameter of operator "
    "(Gather) is invalid",
    reason=r"aten::full|tensor\(float\)",
    link="https://github.com/pytorch/pytorch/issues/104403",
    exporters=("trace",),
    tries=lambda b, n: torch.randn(b, n),
    sizes=((2, 5), (1, 9)),
    case=_filled,
)
def full(original: Callable[..., Tensor], size: Any, fill_value: Any, **kwargs: Any) -> Tensor:
    """Gives torch.full the dtype that eager infers from the value. The exporter would make it float."""
    if kwargs.get("dtype") is not None:
        return NotImplemented
    if isinstance(fill_value, Tensor) and not fill_value.is_floating_point():  # a traced size
        return fill_value.to(kwargs.get("device")).expand(size).clone()
    if isinstance(fill_value, int):
        kwargs["dtype"] = torch.bool if isinstance(fill_value, bool) else torch.int64
        return original(size, int(fill_value), **kwargs)  # the exporter cannot fill with a bool
    return NotImplemented


@op(
    "arange",
    name="float-ranges",
    why="torch.arange(0, n * 0.1, 0.1) has one element more or fewer at some sizes: the graph counts them in float32",
    reason="shape",
    link="https://github.com/onnx/onnx/blob/main/docs/Operators.md#Range",
    # At 11 and 22, float32 counts one more.
    tries=lambda n: torch.randn(2, n),
    sizes=(10, 11, 22, 3, 70),
    case=lambda x: torch.arange(0, x.shape[1] * 0.1, 0.1).cumsum(0) + x.mean(),
    beside=("double-sizes",),
    unchanged=lambda x: x + torch.arange(x.shape[0])[:, None],
)
def float_ranges(*bounds: Any, **kwargs: Any) -> Tensor:
    """`start + step * i` for as many i as torch counts. All bounds are numbers or computed from sizes."""
    alone = len(bounds) == 1 and kwargs.get("end") is None
    given = dict(zip(("end",) if alone else ("start", "end", "step"), bounds, strict=False))
    asked: dict[str, Any] = {"start": 0, "step": 1, **kwargs, **given}
    start, end, step = numbers = (asked["start"], asked["end"], asked["step"])
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    if not any(map(symbolic, numbers)) or not any(map(fractional, numbers)) or not dtype.is_floating_point:
        return NotImplemented
    if not all(isinstance(number, int | float) or symbolic(number) for number in numbers):
        return NotImplemented  # computed from data
    length = as_float(end - start) / step
    count: Any = length.ceil().to(torch.int64) if isinstance(length, Tensor) else math.ceil(length)
    device = kwargs.get("device")
    first, by = (as_tensor(number, torch.float64, device) for number in (start, step))
    return (first + torch.arange(count, device=device) * by).to(dtype)


def _reversed(x: Tensor) -> tuple[Tensor, Tensor]:
    last = torch.arange(x.shape[1] - 1, -1, -1)
    return torch.nn.functional.embedding(last, x.t()), x[torch.arange(x.shape[0] - 1, -1, -2)]


@op(
    "arange",
    name="falling-ranges",
    why="x[torch.arange(n - 1, -1, -1)] has no rows: onnxruntime makes a Slice of it, whose end -1 is the last place",
    reason="shape",
    link="https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/optimizer/gather_fusion.cc",
    tries=lambda b, n: torch.randn(b, n),
    case=_reversed,
    unchanged=lambda x: x[:, torch.arange(x.shape[1])],
)
def falling_ranges(start: Any, end: Any = None, step: Any = 1, **kwargs: Any) -> Tensor:
    """The start less a rising range, if it falls and is of whole numbers."""
    if not isinstance(step, int) or step >= 0 or not (symbolic(start) or symbolic(end)):
        return NotImplemented
    if kwargs.get("dtype") not in (None, torch.int64) or fractional(start) or fractional(end):
        return NotImplemented
    return start - torch.arange(0, start - end, -step, **kwargs)


@op(
    "torch.vander",
    "linalg.vander",
    why="Exporting the operator 'aten::vander' to ONNX is not supported; ScatterND: updates tensor should have shape",
    reason="vander|ScatterND|static shape",
    tries=lambda n: torch.randn(n + 1),
    case=lambda x: (torch.vander(x), torch.vander(x[:2], 3, True), torch.linalg.vander(x), torch.linalg.vander(x, N=3)),
)
def vander(original: Callable[..., Tensor], x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of each number; torch.linalg's rise."""
    powers = torch.arange(x.shape[-1] if N is None else N, device=x.device)
    powers = powers if increasing or "linalg" in original.__name__ else powers.flip(0)
    found = torch.pow(x.unsqueeze(-1), powers.to(x.dtype))
    # Not 0 ** 0, of which runtimes think differently.
    return torch.where(powers == 0, torch.ones_like(found), found)


op(
    "new_empty_strided",
    why=untraced("aten::new_empty_strided"),
    tries=pairs,
    case=lambda x, y: torch.zeros_like(x.new_empty_strided((2, 3), (3, 1))) + x.sum(),
    to=lambda x, size, stride, **more: x.new_zeros(size, **more),
)


def _of_sizes(x: Tensor, *given: Any) -> Tensor:
    # A list or another tensor is what the new tensor holds, and stays with torch.
    sizes = given[0] if len(given) == 1 and isinstance(given[0], torch.Size) else given
    return x.new_zeros(sizes) if any(symbolic(one) for one in sizes) else NotImplemented


op(
    "Tensor.new",
    name="new-of-sizes",
    why="x.new(height, width) of dynamic sizes keeps the traced ones",
    reason="shape|broadcast",
    exporters=("trace",),
    tries=lambda b, n: torch.randn(b, n),
    case=lambda x: (x.new(x.shape[0], x.shape[1] + 2).fill_(0.5), x + x.new(x.size()).zero_()),
    unchanged=lambda x: x + x.new([1.0]),
    to=_of_sizes,
)


@op(
    "combinations",
    why=missing("aten::combinations"),
    reason="combinations|[Uu]nbacked",
    tries=lambda n: torch.randn(n),
    sizes=(5, 7, 3),
    case=lambda x: (torch.combinations(x), torch.combinations(x, 2, True), torch.combinations(x, 3)),
)
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Each choice of r elements, in their order."""
    if r == 0:
        return NotImplemented
    ticks = torch.arange(input.shape[0], device=input.device)
    if r == 1:
        return input.reshape(-1, 1)
    grids = [grid.flatten() for grid in torch.meshgrid([ticks] * r, indexing="ij")]
    keep = torch.ones_like(grids[0], dtype=torch.bool)
    for one, other in itertools.pairwise(grids):
        keep = keep & (one <= other if with_replacement else one < other)
    return torch.stack([input[grid[keep]] for grid in grids], 1)


@op(
    "meshgrid",
    name="grid-of-one-axis",
    why="list index out of range: torch.meshgrid of one tensor",
    reason="list index",
    exporters=("trace",),
    tries=lambda n: torch.randn(n),
    case=lambda x: torch.meshgrid(x, indexing="xy"),
)
def one_axis(*tensors: Any, indexing: str | None = None) -> Any:
    """The one tensor."""
    given = listed(tensors)
    return (given[0].reshape(-1),) if len(given) == 1 else NotImplemented


op(
    "fill",
    why="torch.fill with a bool: We don't have an op for aten::full_like",
    reason="full_like",
    exporters=("trace",),
    tries=pairs,
    case=lambda x, y: torch.fill(x, True),
    to=lambda x, value: x.new_full(x.shape, float(value)) if isinstance(value, bool) else NotImplemented,
)
