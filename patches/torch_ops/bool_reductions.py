"""Reductions of bool tensors, for which onnxruntime has no ReduceMax and CumSum; any() and all() of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from onnxpatch import Proof, exporting, patch

NAMES = ("max", "min", "amax", "amin", "cumsum", "cummax", "cummin", "argmax", "argmin", "any", "all")
_AS_BOOL = ("max", "min", "amax", "amin", "any", "all")


class _Masks(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mask, small = x > 0, x * 0.01
        reduced = mask.max(dim=1).values, mask.amax((0, 2)), torch.cumsum(mask, 1), mask.min(), mask.any(dim=-1).all(0)
        return *reduced, small.any(), torch.any(small.relu(), 1), small.relu().all(dim=-1, keepdim=True)


@patch(
    *(f"{home}.{name}" for home in ("torch", "torch.Tensor") for name in NAMES),
    name="bool-reductions",
    why="Type Error: Type 'tensor(bool)' of input parameter of operator (ReduceMax) in node is invalid",
    link="https://github.com/microsoft/onnxruntime/issues/12098",
    proof=Proof(
        build=_Masks,
        # The last one makes a mask without any True.
        inputs=lambda: [(torch.randn(2, 5, 6),), (torch.randn(3, 8, 6),), (torch.full((1, 4, 6), -1.0),)],
        dynamic_shapes=({0: "batch", 1: "length"},),
        fails=("trace", "dynamo"),
        reason="Type Error: Type 'tensor",
    ),
)
def reduce_bool(original: Callable[..., torch.Tensor], input: Any, **kwargs: Any) -> object:
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
    if isinstance(found, torch.Tensor):
        return found > 0
    # torch's named results (values, indices) are made from one sequence.
    return type(found)((found[0] > 0, found[1]))
