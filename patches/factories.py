"""Tensors made from sizes: linspace and logspace over a dynamic number of steps, identity matrices of bools."""

from __future__ import annotations

from typing import Any

import torch

from onnxpatch import Proof, exporting, patch


class _Positions(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        return x + torch.linspace(-1, 1, steps=n)[:, None] * torch.linspace(0, n - 1, n)[:, None]


@patch(
    "torch.linspace",
    name="linspace",
    why="Received user-specified dim hint Dim.DYNAMIC, but tracing inferred a static shape: linspace pins its steps",
    link="https://github.com/pytorch/pytorch/issues/127396",
    proof=Proof(
        build=_Positions,
        inputs=lambda: [(torch.randn(2, 5, 3),), (torch.randn(1, 9, 3),), (torch.randn(3, 2, 3),)],
        dynamic_shapes=({0: "batch", 1: "length"},),
        fails=("dynamo",),
        exporters=("trace",),
    ),
)
def linspace(original: Any, start: Any, end: Any, steps: Any, **kwargs: Any) -> torch.Tensor:
    """With dynamic steps: from both ends towards the middle, as torch does, so that each end is met exactly."""
    if isinstance(steps, int) or exporting() == "trace":
        return original(start, end, steps, **kwargs)
    made = {key: value for key, value in kwargs.items() if key in ("dtype", "device") and value is not None}
    dtype = made.get("dtype", torch.get_default_dtype())
    ticks = torch.arange(steps, device=made.get("device"))
    last = torch.ones_like(ticks).sum() - 1
    start, end = (_number(value, dtype, ticks.device) for value in (start, end))
    step = (end - start) / last.clamp(min=1).to(dtype)
    rising = start + step * ticks.to(dtype)
    falling = end - step * (last - ticks).to(dtype)
    return torch.where(ticks * 2 < last + 1, rising, falling)


def _number(value: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """A number as it is; a size, or what was computed from one, as a 0-d tensor."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype)
    if isinstance(value, torch.SymInt | torch.SymFloat):
        return torch.scalar_tensor(value, dtype=dtype, device=device)
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
    ),
)
def eye(original: Any, n: Any, m: Any = None, **kwargs: Any) -> torch.Tensor:
    """Where the numbers of row and column agree."""
    if exporting() != "trace":
        return original(n, **kwargs) if m is None else original(n, m, **kwargs)
    device = kwargs.get("device")
    rows, columns = torch.arange(n, device=device), torch.arange(n if m is None else m, device=device)
    return (rows[:, None] == columns).to(kwargs.get("dtype") or torch.get_default_dtype())
