"""Tensors made of sizes: torch.tensor of a list, linspace with dynamic steps, eye of bools, full."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from onnxpatch import Proof, patch
from onnxpatch.formulas.symbolic import as_tensor, symbolic


class _Sizes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height, width = x.shape[1:3]
        sizes = torch.as_tensor([(height, width), (height // 2, width // 2)], dtype=torch.long)
        middle = torch.tensor([height / 2, 1.0])
        return sizes.prod(1).cumsum(0) + x.mean() + middle[None]


@patch(
    "torch.tensor",
    "torch.as_tensor",
    name="tensor-of-sizes",
    why="torch.tensor([height, width]) of dynamic sizes keeps the traced ones: Converting a tensor to a Python integer",
    link="https://github.com/pytorch/pytorch/pull/28713",
    exporters=("dynamo", "trace"),
    proof=Proof(
        build=_Sizes,
        inputs=lambda: [(torch.randn(2, *size),) for size in ((4, 6), (9, 3), (2, 11))],
        dynamic_shapes=({1: "height", 2: "width"},),
        fails=("dynamo", "trace"),
        reason="static shape|relative error",
        unchanged="fixed sizes",
    ),
)
def tensor_of_sizes(
    original: Callable[..., torch.Tensor], data: Any, dtype: Any = None, device: Any = None
) -> torch.Tensor:
    """Stacks nested lists that have sizes in them, so that the sizes stay dynamic."""
    # Lists of plain numbers are constants, and stay with torch.
    return _stacked(data, dtype or _dtype_of(data), device) if _holds_size(data) else NotImplemented


def _holds_size(data: object) -> bool:
    if isinstance(data, list | tuple):
        return any(_holds_size(inner) for inner in data)
    return symbolic(data)


def _dtype_of(data: object) -> torch.dtype:
    if isinstance(data, list | tuple):
        return functools.reduce(torch.promote_types, map(_dtype_of, data))
    if isinstance(data, torch.Tensor):
        # In eager, a number computed from sizes is a Python float.
        return torch.get_default_dtype() if data.dtype.is_floating_point else data.dtype
    whole = isinstance(data, int | torch.SymInt)
    return torch.bool if isinstance(data, bool) else torch.int64 if whole else torch.get_default_dtype()


def _stacked(data: Any, dtype: torch.dtype, device: Any) -> torch.Tensor:
    if isinstance(data, list | tuple):
        return torch.stack([_stacked(inner, dtype, device) for inner in data])
    return as_tensor(data, dtype, device)


class _Positions(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        return x + torch.linspace(-1, 1, steps=n)[:, None] * torch.linspace(0.5, n - 0.5, n)[:, None]


@patch(
    "torch.linspace",
    name="linspace",
    why="Received user-specified dim hint Dim.DYNAMIC, but tracing inferred a static shape: linspace pins its steps; "
    "the TorchScript exporter's linspace of one step is NaN",
    link="https://github.com/pytorch/pytorch/issues/127396",
    proof=Proof(
        build=_Positions,
        # The last one has a single step, for which the exporter divides by 0.
        inputs=lambda: [(torch.randn(2, 5, 3),), (torch.randn(1, 9, 3),), (torch.randn(3, 1, 3),)],
        dynamic_shapes=({0: "batch", 1: "length"},),
        fails=("dynamo", "trace"),
        reason="static shape|non-finite",
        unchanged="fixed sizes",
    ),
)
def linspace(original: Callable[..., torch.Tensor], start: Any, end: Any, steps: Any, **kwargs: Any) -> torch.Tensor:
    """Computes linspace with dynamic steps from both ends, as torch does, so that both ends are exact."""
    if not symbolic(steps):
        return NotImplemented
    made = {key: value for key, value in kwargs.items() if key in ("dtype", "device") and value is not None}
    dtype = made.get("dtype", torch.get_default_dtype())
    ticks = torch.arange(steps, device=made.get("device"))
    # Counted in the graph: a Python number would fix the steps at the example's.
    last = torch.ones_like(ticks).sum() - 1
    start, end = (_number(value, dtype, ticks.device) for value in (start, end))
    # At least 1: a single step would be 0 / 0.
    step = (end - start) / last.clamp(min=1).to(dtype)
    rising = start + step * ticks.to(dtype)
    falling = end - step * (last - ticks).to(dtype)
    return torch.where(ticks * 2 < last + 1, rising, falling)


def _number(value: object, dtype: torch.dtype, device: torch.device) -> Any:
    """A number unchanged; a size, or a number computed from sizes, as a 0-d tensor."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype)
    if isinstance(value, torch.SymInt | torch.SymFloat):
        number: Any = value
        return torch.scalar_tensor(number, dtype=dtype, device=device)
    return value


class _Diagonal(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = x @ x.transpose(1, 2)
        return scores.masked_fill(torch.eye(x.shape[1], dtype=torch.bool), 0.0)


@patch(
    "torch.eye",
    name="eye",
    why="NOT_IMPLEMENTED: Could not find an implementation for EyeLike(9), for an identity matrix of bools",
    link="https://github.com/pytorch/pytorch/issues/124279",
    exporters=("trace",),
    proof=Proof(
        build=_Diagonal,
        inputs=lambda: [(torch.randn(2, 5, 3),), (torch.randn(1, 9, 3),)],
        dynamic_shapes=({0: "batch", 1: "length"},),
        fails=("trace",),
        reason="Could not find an implementation for EyeLike",
    ),
)
def eye(original: Callable[..., torch.Tensor], n: Any, m: Any = None, **kwargs: Any) -> torch.Tensor:
    """Compares row and column indices."""
    device = kwargs.get("device")
    rows, columns = torch.arange(n, device=device), torch.arange(n if m is None else m, device=device)
    return (rows[:, None] == columns).to(kwargs.get("dtype") or torch.get_default_dtype())


class _Filled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ids = torch.full((x.shape[0], 1), 2)
        counts = torch.full((x.shape[0], 2), x.shape[1])
        return x.gather(1, ids) + torch.full(x.shape[:1], True)[:, None].int() + x.gather(1, counts - 4)


@patch(
    "torch.full",
    name="full",
    why="torch.full of an integer or a bool comes out as float: Type 'tensor(float)' of input parameter of operator "
    "(Gather) is invalid",
    link="https://github.com/pytorch/pytorch/issues/104403",
    exporters=("trace",),
    proof=Proof(
        build=_Filled,
        inputs=lambda: [(torch.randn(2, 5),), (torch.randn(1, 9),)],
        dynamic_shapes=({0: "batch", 1: "length"},),
        fails=("trace",),
        reason=r"aten::full|tensor\(float\)",
    ),
)
def full(original: Callable[..., torch.Tensor], size: Any, fill_value: Any, **kwargs: Any) -> torch.Tensor:
    """Gives torch.full the dtype that eager infers from the value. The exporter would make it float."""
    if kwargs.get("dtype") is not None:
        return NotImplemented
    if isinstance(fill_value, torch.Tensor) and not fill_value.is_floating_point():  # a traced size
        return fill_value.to(kwargs.get("device")).expand(size).clone()
    if isinstance(fill_value, int):
        kwargs["dtype"] = torch.bool if isinstance(fill_value, bool) else torch.int64
        return original(size, int(fill_value), **kwargs)  # the exporter cannot fill with a bool
    return NotImplemented
