"""Functions that reduce axes: extremes, sums, variances, counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import exporting, missing, op
from onnxpatch.formulas.symbolic import symbolic

_AS_BOOL = ("max", "min", "amax", "amin", "any", "all")


def _masks(x: Tensor) -> tuple[Tensor, ...]:
    mask, small = x > 0, x * 0.01
    reduced = mask.max(dim=1).values, mask.amax((0, 2)), torch.cumsum(mask, 1), mask.min(), mask.any(dim=-1).all(0)
    return *reduced, small.any(), torch.any(small.relu(), 1), small.relu().all(dim=-1, keepdim=True)


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
    "any",
    "all",
    name="bool-reductions",
    why="Type Error: Type 'tensor(bool)' of input parameter of operator (ReduceMax) in node is invalid",
    link="https://github.com/microsoft/onnxruntime/issues/12098",
    reason="Type Error: Type 'tensor",
    # The last one makes a mask without any True.
    tries=lambda: [torch.randn(2, 5, 6), torch.randn(3, 8, 6), torch.full((1, 4, 6), -1.0)],
    case=_masks,
)
def reduce_bool(original: Callable[..., Tensor], input: Any, **kwargs: Any) -> object:
    """Reduces ints in place of bools, and converts the result back if torch returns bool.

    Also any() of floats under trace: the exporter converts them to ints first, where 0.2 becomes 0.
    """
    name = original.__name__
    if name in ("any", "all") and exporting() == "trace":
        input = input if input.dtype in (torch.bool, torch.uint8) else input != 0
        # `dim=()` means all axes; a `dim` of the call takes its place.
        name, kwargs = "amax" if name == "any" else "amin", {"dim": (), **kwargs}
    # dynamo has a translation of its own for them, which is right.
    elif name in ("any", "all"):
        return NotImplemented
    # torch.max(x, other) is no reduction.
    if input.dtype != torch.bool or "other" in kwargs:
        return NotImplemented
    numbers = input.to(torch.int32)
    found = getattr(torch, name)(numbers, **kwargs)
    # cumsum of bools counts, and argmax gives places: whole numbers in eager, too.
    if name not in _AS_BOOL:
        return found
    if isinstance(found, Tensor):
        return found > 0
    # torch's named results (values, indices) are made from one sequence.
    return type(found)((found[0] > 0, found[1]))


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
def largest(original: Callable[..., Tensor], input: Tensor, dim: object = (), keepdim: bool = False) -> Tensor:
    """Lists all axes, which the exporter asks for."""
    # A 0-d tensor has no axes to list.
    if dim != () or input.dim() == 0:
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
    "bincount",
    why=missing("aten::bincount"),
    # In the last there are more bins by minlength than by the numbers.
    tries=lambda n, most: (torch.arange(n) * 3 % most, torch.randn(n)),
    sizes=((8, 7), (11, 19), (1, 2)),
    case=lambda x, weights: (torch.bincount(x, minlength=4), x.bincount(weights), torch.bincount(x)),
)
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Counts 0 ... max(input). Under dynamo the number of bins is a size that depends on data."""
    places = input.to(torch.int64)
    # One more entry, so that an empty input has a maximum.
    longest = torch.cat((places, places.new_full((1,), -1))).amax(0) + 1
    count: Any = torch.clamp(longest, min=minlength)
    if exporting() == "dynamo":
        count = count.item()
        # A number out of data may be a size only once it is known not to be negative.
        torch._check(count >= 0)
    # In eager, weights of any dtype but float32 are summed in float64, and so is what comes out.
    wide = weights is None or weights.dtype == torch.float32
    ones = torch.ones_like(places) if weights is None else weights if wide else weights.double()
    return torch.zeros([count], dtype=ones.dtype, device=ones.device).scatter_add(0, places, ones)


@op(
    "histc",
    why=missing("aten::histc"),
    tries=lambda n: torch.randn(n),
    sizes=(30, 90, 3),
    case=lambda x: (torch.histc(x, bins=5, min=-1.0, max=1.5), x.histc(7)),
)
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Counts elements in bins by torch's formula. Without limits, bins go from the smallest to the largest element."""
    if input.dtype not in (torch.float32, torch.float64):
        return NotImplemented  # eager finds the bins in half precision, with roundings of its own
    x = input.flatten()
    # torch means by 0 and 0 that no limits are given.
    free = min == 0 and max == 0
    low, high = (x.amin(0), x.amax(0)) if free else (torch.full_like(x[:1], min), torch.full_like(x[:1], max))
    equal = high == low
    # All elements equal, or limits: torch widens the range by 1 on both sides.
    low, high = torch.where(equal, low - 1, low), torch.where(equal, high + 1, high)
    inside = (x >= low) & (x <= high)
    # One more bin takes elements outside the limits. The upper limit belongs to the last bin.
    places = ((x - low) * bins / (high - low)).to(torch.int64).clamp(0, bins - 1)
    return torch.zeros_like(x[:1]).expand([bins]).clone().scatter_add(0, places, inside.to(x.dtype))
