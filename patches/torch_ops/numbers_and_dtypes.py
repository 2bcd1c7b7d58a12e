"""Operations on ints and floats for which an exporter writes a wrong dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, patch


class _Reversed(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return 1.0 - x, torch.rsub(x, 2.5), 1 - x, 0.5 - (x > 0).to(torch.int32)


@patch(
    "torch.rsub",
    "torch.Tensor.__rsub__",
    name="number-minus-integers",
    why="Cannot find a compatible OpOverload for aten.sub with the provided arguments",
    link="https://github.com/pytorch/pytorch/issues/144382",
    exporters=("dynamo",),
    proof=Proof(
        build=_Reversed,
        inputs=lambda: [(torch.arange(n) - 3,) for n in (5, 9, 1)],
        dynamic_shapes=({0: "n"},),
        fails=("dynamo",),
        reason="aten.sub",
    ),
)
def number_minus(original: Callable[..., Tensor], input: Tensor, other: object, *, alpha: object = 1) -> Tensor:
    """Writes `2.5 - ints` as -ints + 2.5, which the exporter promotes correctly."""
    if input.is_floating_point() or not isinstance(other, float) or alpha != 1:
        return NotImplemented
    return input.to(torch.get_default_dtype()).neg() + other


class _Limited(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        limits = (x.clamp(-2.5, 3.5), torch.clamp(x, min=0.5), x.clamp(max=1), torch.clip(x, 0, 2.5))
        return *limits, x.clamp_min(0.5), torch.clamp_max(x, 1.5), x.clamp(torch.tensor(-1.5), torch.tensor(2.5))


@patch(
    "torch.clamp",
    "torch.Tensor.clamp",
    "torch.clip",
    "torch.Tensor.clip",
    "torch.clamp_min",
    "torch.Tensor.clamp_min",
    "torch.clamp_max",
    "torch.Tensor.clamp_max",
    name="integers-clamped-by-floats",
    why="whole numbers limited by 3.5 come out as whole numbers, limited by 3",
    link="https://github.com/pytorch/pytorch/issues/143222",
    exporters=("trace",),
    proof=Proof(
        build=_Limited,
        inputs=lambda: [(torch.arange(n) - 4,) for n in (9, 12, 1)],
        dynamic_shapes=({0: "n"},),
        fails=("trace",),
        reason="int64, eager has float32",
    ),
)
def clamp(original: Callable[..., Tensor], input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Clamps ints by floats in floats, as torch does."""
    if input.is_floating_point() or not any(map(_fractional, (min, max))):
        return NotImplemented
    return input.to(torch.get_default_dtype()).clamp(min, max)


def _fractional(limit: object) -> bool:
    return limit.is_floating_point() if isinstance(limit, Tensor) else isinstance(limit, float)


class _Largest(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.amax(), torch.amin(x), x.amax(keepdim=True), x.amax(()), x.amin(1)


@patch(
    "torch.amax",
    "torch.Tensor.amax",
    "torch.amin",
    "torch.Tensor.amin",
    name="largest-of-all",
    why="Required parameter 'dim' is not provided. Signature: pkg.onnxscript.torch_lib::aten_amax",
    link="https://github.com/microsoft/onnxscript/issues/1577",
    exporters=("dynamo",),
    proof=Proof(
        build=_Largest,
        inputs=lambda: [(torch.randn(n, 3),) for n in (5, 9, 1)],
        dynamic_shapes=({0: "n"},),
        fails=("dynamo",),
        reason="aten_amax",
    ),
)
def largest(original: Callable[..., Tensor], input: Tensor, dim: object = (), keepdim: bool = False) -> Tensor:
    """Lists all axes, which the exporter asks for."""
    # A 0-d tensor has no axes to list.
    if dim != () or input.dim() == 0:
        return NotImplemented
    return original(input, tuple(range(input.dim())), keepdim)


class _Squeezed(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.squeeze(1) * 2, x.unsqueeze(0).squeeze(0), torch.squeeze(x.unsqueeze(1), (1, -1))


@patch(
    "torch.squeeze",
    "torch.Tensor.squeeze",
    name="squeeze-of-a-dynamic-axis",
    why="Dimension of input 1 must be 1 instead of 3: the axis that torch leaves alone is squeezed in the graph",
    link="https://github.com/pytorch/pytorch/issues/121211",
    exporters=("dynamo",),
    proof=Proof(
        build=_Squeezed,
        inputs=lambda: [(torch.randn(4, n, 6),) for n in (3, 5, 2)],
        dynamic_shapes=({1: "n"},),
        fails=("dynamo",),
        reason="Squeeze",
    ),
)
def squeeze(original: Callable[..., Tensor], input: Tensor, *axes: Any, **named: Any) -> Tensor:
    """Keeps dynamic axes. Eager removes one at size 1 only."""
    given = (*axes, *named.values())
    if len(given) != 1 or isinstance(given[0], str):
        return NotImplemented
    wanted = list(given[0]) if isinstance(given[0], tuple | list) else [given[0]]
    # torch.export takes an axis of size 1 for static. A dynamic one is longer, and eager keeps it.
    fixed = [axis for axis in wanted if not isinstance(input.shape[axis], torch.SymInt)]
    if len(fixed) == len(wanted):
        return NotImplemented
    return input.squeeze(tuple(fixed)) if fixed else input
