"""Functions that reduce axes or run along them: extremes, sums, products, variances."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import exporting, missing, op, untraced
from onnxpatch.formulas import scans
from onnxpatch.formulas.symbolic import decided_by_data, symbolic
from onnxpatch.patching.proof import LOST_DIGITS, integers, matrices

_COUNTED = ("cumsum", "argmax", "argmin")


def _masks(x: Tensor) -> tuple[Tensor, ...]:
    mask, small = x > 0, x * 0.01
    reduced = mask.max(dim=1).values, mask.amax((0, 2)), torch.cumsum(mask, 1), mask.min(), mask.any(dim=-1).all(0)
    runs = *mask.cummin(2), mask.cummax(2).values, mask.mode(2).values, *mask.aminmax()
    return *reduced, *runs, small.any(), torch.any(small.relu(), 1), small.relu().all(dim=-1, keepdim=True)


@op(
    "max",
    "min",
    "amax",
    "amin",
    "cumsum",
    "cummax",
    "cummin",
    "argmax",
    "argmin",
    "aminmax",
    "any",
    "all",
    "mode",
    name="bool-reductions",
    why="Type Error: Type 'tensor(bool)' of input parameter of operator (ReduceMax) in node is invalid",
    link="https://github.com/microsoft/onnxruntime/issues/12098",
    reason="Type Error: Type 'tensor|topk does not support bool",
    # The last one makes a mask without any True.
    tries=lambda: [torch.randn(2, 5, 6), torch.randn(3, 8, 6), torch.full((1, 4, 6), -1.0)],
    case=_masks,
    beside=("aminmax", "running-extremes", "mode"),
)
def reduce_bool(original: Callable[..., Tensor], input: Any, **kwargs: Any) -> object:
    """Reduces ints in place of bools, and converts the result back if torch returns bool.

    Also any() of floats under trace: the exporter converts them to ints first, where 0.2 becomes 0.
    """
    name = original.__name__
    if name in ("any", "all"):
        if exporting() != "trace":  # dynamo has a translation of its own for them, which is right
            return NotImplemented
        input = input if input.dtype in (torch.bool, torch.uint8) else input != 0
        # `dim=()` means all axes; a `dim` of the call takes its place.
        name, kwargs = "amax" if name == "any" else "amin", {"dim": (), **kwargs}
    # torch.max(x, other) is no reduction.
    if input.dtype != torch.bool or "other" in kwargs:
        return NotImplemented
    # Of bytes a reduction takes a sixth of the time.
    numbers = input.to(torch.uint8 if name in ("amax", "amin") else torch.int32)
    found = getattr(torch, name)(numbers, **kwargs)
    # cumsum of bools counts, and argmax gives places: whole numbers in eager, too.
    if name in _COUNTED:
        return found
    if isinstance(found, Tensor):
        return found > 0
    # torch's named results (values, indices; min, max) are made from one sequence.
    return type(found)([part > 0 if part.dtype == numbers.dtype else part for part in found])


def _differences(x: Tensor) -> tuple[Tensor, ...]:
    steps = x[:, 1:] - x[:, :-1]
    return steps.abs().sum(-1), torch.sum(steps, dim=(-1,), keepdim=True), steps.prod(-1)


@op(
    "sum",
    "prod",
    name="empty-reductions",
    why="x[:, 1:].sum(-1) of one column has shape (b, 0): onnxruntime's ReduceSum of an empty axis -1",
    reason="shape",
    link="https://onnx.ai/onnx/operators/onnx__ReduceSum.html",
    # Of one column there are no differences.
    tries=lambda b, n: torch.randn(b, n),
    sizes=((2, 5), (3, 1), (1, 8)),
    case=_differences,
    unchanged=lambda x: x.sum(0),
)
def empty_reductions(original: Callable[..., Tensor], input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The same with axes counted from the front, if one of them has a dynamic size."""
    name = "dim" if "dim" in kwargs or not args else ""
    dim = kwargs.get("dim") if name else args[0]
    axes = [dim] if isinstance(dim, int) else list(dim) if isinstance(dim, tuple | list) else []
    if not any(axis < 0 and symbolic(input.shape[axis]) for axis in axes):
        return NotImplemented
    whole = [axis % input.dim() for axis in axes]
    front: Any = whole[0] if isinstance(dim, int) else whole
    return original(input, **{**kwargs, "dim": front}) if name else original(input, front, *args[1:], **kwargs)


def _means(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    chosen = x[mask]
    return chosen.mean(0), torch.mean(chosen, dim=(-1, -2), keepdim=True)


@op(
    "mean",
    name="mean-of-nothing",
    why="x[mask].mean(0) of a mask that is off is NaN; onnxruntime's ReduceMean of no rows is 0",
    reason="non-finite values",
    link="https://onnx.ai/onnx/operators/onnx__ReduceMean.html",
    tries=lambda n, least: (torch.randn(n, 3), torch.arange(n) > least),
    sizes=((5, 2), (4, 3), (7, 1)),
    case=_means,
    unchanged=lambda x, mask: x.mean(0),
)
def mean_of_nothing(
    original: Callable[..., Tensor], input: Tensor, dim: Any = None, keepdim: bool = False, **more: Any
) -> Tensor:
    """A sum over a number of rows that data decides, divided by it: NaN for no rows."""
    axes = range(input.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    if more or input.dtype not in (torch.float32, torch.float64) or not decided_by_data(input, axes):
        return NotImplemented
    # From the front: see `empty-reductions`.
    return input.sum([axis % input.dim() for axis in axes], keepdim) / math.prod(input.shape[axis] for axis in axes)


@op(
    "amax",
    "amin",
    name="largest-of-all",
    why="Required parameter 'dim' is not provided. Signature: pkg.onnxscript.torch_lib::aten_amax",
    reason="aten_amax",
    link="https://github.com/microsoft/onnxscript/issues/1577",
    exporters=("dynamo",),
    tries=lambda n: torch.randn(n, 3),
    case=lambda x: (x.amax(), torch.amin(x), x.amax(keepdim=True), x.amax(()), x.amin(1)),
)
def extremes_of_all_axes(
    original: Callable[..., Tensor], input: Tensor, dim: object = (), keepdim: bool = False
) -> Tensor:
    """Lists all axes, which the exporter asks for."""
    if not input.dim():
        return input.clone()
    if dim != ():
        return NotImplemented
    return original(input, tuple(range(input.dim())), keepdim)


@op(
    "var",
    name="variance",
    why="thirteen nodes for a variance that keeps its dimension: its shape is computed anew, from every size",
    link="https://github.com/pytorch/pytorch/blob/main/torch/_refs/__init__.py",
    exporters=("dynamo",),
    tries=lambda b, size: torch.randn(b, 6, *size),
    sizes=((2, (4, 5)), (1, (7, 3)), (3, (1, 1))),
    case=lambda x: (x - x.mean(1, keepdim=True)) / (x.var(dim=1, unbiased=False, keepdim=True) + 1e-5).sqrt(),
    leaner=("dynamo",),
)
def variance(
    input: Tensor,
    dim: int | list[int] | None = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """The mean of the squares of x - mean(x), if the dimension is kept and nothing is corrected for."""
    corrected = unbiased if correction is None else correction != 0
    if dim is None or corrected or not keepdim or not input.is_floating_point():
        return NotImplemented
    centred = input - input.mean(dim, keepdim=True)
    return (centred * centred).mean(dim, keepdim=True)


@op(
    "var_mean",
    "std_mean",
    name="spread-and-mean-of-all",
    why="shape () where eager has (1, 1): keepdim is left out where all axes are meant",
    reason="shape",
    exporters=("trace",),
    tries=lambda b, n: torch.randn(b, n),
    case=lambda x: (*torch.var_mean(x, keepdim=True), *torch.std_mean(x, correction=0, keepdim=True)),
    unchanged=lambda x: torch.var_mean(x, 1),
)
def spread_and_mean(original: Callable[..., Any], input: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The same with all axes listed."""
    if args or kwargs.get("dim") is not None or not kwargs.pop("keepdim", False):
        return NotImplemented
    more = {name: one for name, one in kwargs.items() if name != "dim"}
    return original(input, dim=tuple(range(input.dim())), keepdim=True, **{"correction": 1, **more})


def _alignments(scores: Tensor) -> Tensor:
    """Sums over paths that begin anywhere from 0 on: the first entry of each row but one is masked."""
    before = torch.arange(scores.shape[1])[None, :] < torch.arange(3)[:, None]
    return (scores[:, None] * 100 - 200).masked_fill(before, -math.inf).logsumexp(-1)


@op(
    "logsumexp",
    why="non-finite values differ: where a row begins with -inf and its other numbers are below -104, onnxruntime's "
    "ReduceLogSumExp is -inf",
    tries=lambda b, n: torch.rand(b, n),
    case=_alignments,
    reason=LOST_DIGITS,
)
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """As eager: the sum is taken beside the largest number, where that is finite."""
    if not input.is_floating_point() or not input.dim():
        return NotImplemented
    largest = input.amax(dim, keepdim=True)
    largest = torch.where(largest.abs() == math.inf, torch.zeros_like(largest), largest)
    found = torch.log(torch.exp(input - largest).sum(dim, keepdim=True)) + largest
    # Of one element along these axes: their sum is a way to leave them out.
    return found if keepdim else found.sum(dim)


@op("count_nonzero", why=untraced("aten::count_nonzero"), tries=integers,
    case=lambda x: (torch.count_nonzero(x, 1), x.count_nonzero(dim=(0, 1)), (x > 0).count_nonzero()))  # fmt: skip
def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """How many numbers are not 0, along the axes or in all."""
    counted = (input != 0).to(torch.float64)  # onnxruntime's sum of whole numbers takes ten times as long
    return (counted.sum() if dim is None else counted.sum(dim)).to(torch.int64)


def _summed(x: Tensor, size: Any) -> Tensor:
    """The sum of all that was broadcast from this shape."""
    size = size if isinstance(size, list | tuple) else (size,)
    front = x.dim() - len(size)
    axes = [axis for axis in range(x.dim()) if axis < front or size[axis - front] == 1]
    found = x.sum(axes, keepdim=True) if axes else x.clone()
    for _ in range(front):
        found = found.squeeze(0)
    return found


op(
    "sum_to_size",
    why=untraced("aten::sum_to_size"),
    tries=matrices,
    case=lambda x: (x.sum_to_size(1, 1), x.sum_to_size(1), x.sum_to_size((x.shape[0], 1, 1))),
    to=_summed,
)


@op(
    "cumprod",
    "logcumsumexp",
    name="running-products",
    why="Exporting the operator 'aten::cumprod' to ONNX is not supported; logcumsumexp of wide inputs is inf",
    reason="aten::cumprod|non-finite values differ",
    link="https://github.com/pytorch/pytorch/issues/126972",
    tries=lambda b, n: torch.randn(b, n, 3),
    sizes=((2, 6), (3, 11), (1, 1)),
    case=lambda x: (torch.cumprod(x, 1), torch.cumprod(x.round().int(), 1), torch.logcumsumexp(x * 200, dim=1)),
)
def running_product(
    original: Callable[..., Tensor], input: Tensor, dim: int, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Computes cumprod or logcumsumexp in log2(length) steps."""
    x = input if dtype is None else input.to(dtype)
    if x.is_complex() or x.dim() == 0:
        return NotImplemented
    if original.__name__ == "cumprod":
        return scans.scanned_product(x, dim)
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    return scans.logcumsumexp(wide, dim).to(x.dtype)


def _phases(f0: Tensor) -> Tensor:
    """A tone by its frequency, as the source of a vocoder: the phase after 5,000 steps is some hundred turns."""
    steps = f0.abs().repeat_interleave(1000, 1) * 0.1 + 0.03
    return torch.sin(2 * math.pi * torch.cumsum(steps, 1))


@op(
    "cumsum",
    name="long-running-sums",
    why="relative error of what is made of a long sum: torch's CPU kernel adds in double, onnxruntime in the dtype",
    reason="relative error",
    link="https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/cpu/ReduceOpsKernel.cpp",
    tries=lambda b, n: torch.randn(b, n),
    sizes=((2, 5), (3, 20), (1, 1)),
    case=_phases,
    unchanged=lambda x: x.reshape(-1, 1).cumsum(1),
)
def long_running_sum(
    original: Callable[..., Tensor], input: Tensor, dim: int, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Adds in double, along an axis that is dynamic or long."""
    if input.dtype != torch.float32 or dtype not in (None, torch.float32) or not input.dim():
        return NotImplemented
    size = input.shape[dim]
    return original(input.double(), dim).float() if symbolic(size) or size > 1000 else NotImplemented


def _extremes(x: Tensor) -> tuple[Tensor, ...]:
    ranked = (x * 3).to(torch.int64)
    holes = torch.where(x > 1, torch.nan, torch.where(x < 0, -torch.inf, x))
    few = ranked.remainder(3).to(torch.uint8).cummin(2).values
    return (*torch.cummax(holes.round(), 1), *x.cummin(dim=-1), *ranked.cummax(-2), *ranked.cummin(1), few)


@op(
    "cummax",
    "cummin",
    name="running-extremes",
    why=missing("aten::cummax"),
    reason=r"aten(::|\.)cumm(ax|in)",
    tries=lambda b, n: torch.randn(b, n, 3),
    sizes=((2, 6), (3, 11), (1, 1)),
    case=_extremes,
)
def running_extreme(original: Callable[..., Tensor], input: Tensor, dim: int) -> Any:
    """Computes cummax or cummin by the same steps."""
    if input.dim() == 0:
        return NotImplemented
    # The smallest entry so far is the largest of the negative ones, which a byte does not have.
    sign = 1 if original.__name__ == "cummax" else -1
    wide = input.to(torch.int32) if input.dtype in (torch.uint8, torch.int8) else input
    largest, places = scans.cummax(sign * wide, dim % input.dim())
    return getattr(torch.return_types, original.__name__)(((sign * largest).to(input.dtype), places))


@op(
    "linalg.norm",
    name="norms-of-all-axes",
    why="'NoneType' object is not subscriptable (Occurred when translating linalg_norm): an order without axes",
    reason="subscriptable",
    exporters=("trace",),
    tries=lambda n: torch.randn(n),
    case=lambda x: (torch.linalg.norm(x[x > -9], 0), torch.linalg.norm(x[x > -9], 3, keepdim=True)),
    unchanged=lambda x: torch.linalg.norm(x, dim=0),
)
def norm_of_all(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, **more: Any) -> Tensor:
    """Along the one axis, or the two, that there are."""
    if ord is None or dim is not None or A.dim() not in (1, 2):
        return NotImplemented
    of = torch.linalg.vector_norm if A.dim() == 1 else torch.linalg.matrix_norm
    return of(A, ord, tuple(range(A.dim())), keepdim, **more)


@op(
    "norm",
    "vector_norm",
    name="norms-of-bfloat16",
    why="ScalarType ComplexDouble is an unexpected tensor scalar type: a number beside bfloat16, the norm's order",
    reason="ComplexDouble",
    exporters=("trace",),
    tries=matrices,
    case=lambda x: (torch.linalg.vector_norm(x.bfloat16(), 3, -1), x.bfloat16().norm(1.5)),
    unchanged=lambda x: torch.linalg.vector_norm(x, 3, -1),
)
def norm_of_bfloat16(original: Callable[..., Tensor], input: Tensor, *rest: Any, **more: Any) -> Tensor:
    """The norm in float32."""
    if input.dtype != torch.bfloat16:
        return NotImplemented
    return original(input.float(), *rest, **more).to(more.get("dtype") or input.dtype)


@op(
    "aminmax",
    why="Required parameter 'dim' is not provided: onnxscript's extremes have an axis",
    reason="Required parameter",
    link="https://pytorch.org/docs/stable/generated/torch.aminmax.html",
    exporters=("dynamo",),
    tries=matrices,
    case=lambda x: (*x.aminmax(), *torch.aminmax(x, keepdim=True)),
    unchanged=lambda x: x.amax(-1),
)
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> torch.return_types.aminmax:
    """The extremes of all elements. Those along an axis are left to the exporter."""
    if dim is not None or not input.dim():
        return NotImplemented
    flat, shape = input.reshape(-1), [1] * input.dim() if keepdim else []
    return torch.return_types.aminmax((flat.amin(0).reshape(shape), flat.amax(0).reshape(shape)))
