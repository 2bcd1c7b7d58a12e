"""einops' rearrangement as a layer of its own, and the plan run in torch and in ONNX nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from onnxpatch.arrange import arrange
from onnxpatch.axes import AxisPlan, product
from onnxpatch.emit import Recipe, Value, Writer, run
from onnxpatch.layout import Layout
from onnxpatch.sizes import Sizes


def rearrange(x: torch.Tensor, plan: AxisPlan, given: Sequence[Any] = ()) -> torch.Tensor:
    """The tensor rearranged; given: the lengths that the plan's pattern leaves to the caller."""
    if plan.inputs == plan.outputs:
        return x
    lengths, tensors = separate(given)

    def in_torch(x: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        sizes = plan.lengths(x.shape, together(lengths, tensors))
        x = split(x, plan, sizes)
        x = permute(x, [plan.split.index(axis) for axis in plan.order])
        return merge(x, plan, sizes)

    def in_onnx(writer: Writer, x: Value, *values: Value) -> Value:
        layout = start(writer, x, plan, together(lengths, values))
        arrange(layout, plan.outputs)
        return layout.value

    return run(Recipe(in_torch, in_onnx), x, *tensors)


def start(writer: Writer, x: Value, plan: AxisPlan, given: Sequence[Any]) -> Layout:
    """The layout of a plan's input."""
    sizes = Sizes(writer, x, given)
    return Layout(writer, sizes, x, plan.inputs, sizes.axes(plan))


def separate(given: Sequence[Any]) -> tuple[list[Any], list[torch.Tensor]]:
    """Lengths that are tensors (sizes in a trace) become inputs of the recipe; their places are left None."""
    lengths = [None if isinstance(length, torch.Tensor) else length for length in given]
    return lengths, [length for length in given if isinstance(length, torch.Tensor)]


def together(lengths: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
    """The reverse of `separate`."""
    rest = iter(tensors)
    return [next(rest) if length is None else length for length in lengths]


def split(x: torch.Tensor, plan: AxisPlan, sizes: Sequence[Any]) -> torch.Tensor:
    """One dimension per axis of the input."""
    if all(len(group) == 1 for group in plan.inputs):
        return x
    return x.reshape([sizes[axis] for axis in plan.split])


def permute(x: torch.Tensor, places: Sequence[int]) -> torch.Tensor:
    """Nothing where the order is right already."""
    return x if list(places) == list(range(len(places))) else x.permute(list(places))


def merge(x: torch.Tensor, plan: AxisPlan, sizes: Sequence[Any]) -> torch.Tensor:
    """The dimensions of the output, from one per axis."""
    if all(len(group) == 1 for group in plan.outputs):
        return x
    return x.reshape([product([sizes[axis] for axis in group]) for group in plan.outputs])
