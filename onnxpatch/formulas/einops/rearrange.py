"""einops.rearrange from a plan, in torch and in ONNX nodes; and `CustomRearrange`, a layer made of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from onnxpatch.formulas.einops.arrange import arrange
from onnxpatch.formulas.einops.axes import AxisPlan, product
from onnxpatch.formulas.einops.graph_sizes import GraphSizes
from onnxpatch.formulas.einops.layout import Layout
from onnxpatch.formulas.einops.stepwise import Stepwise, stepwise
from onnxpatch.formulas.einops.words import refuse
from onnxpatch.formulas.nodes import Recipe, Value, Writer, numbers, run


def rearrange(x: torch.Tensor, plan: AxisPlan, given: Sequence[object] = (), filled: bool = False) -> torch.Tensor:
    """The tensor rearranged.

    given: the lengths that the pattern leaves to the caller. filled: eager refuses an empty tensor.
    """
    # Only names differ: no node at all.
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
        layout.filled = filled
        arrange(layout, plan.outputs)
        return layout.value

    return run(Recipe(in_torch, in_onnx), x, *tensors)


def start(writer: Writer, x: Value, plan: AxisPlan, given: Sequence[object]) -> Layout:
    """The layout of the input of a plan."""
    sizes = GraphSizes(writer, x, given)
    return Layout(writer, sizes, x, plan.inputs, sizes.axes(plan))


def separate(given: Sequence[object]) -> tuple[list[Any], list[torch.Tensor]]:
    """(lengths with None for tensors, these tensors): under trace, sizes are tensors and inputs of the recipe."""
    lengths = [None if isinstance(length, torch.Tensor) else length for length in given]
    return lengths, [length for length in given if isinstance(length, torch.Tensor)]


def together(lengths: Sequence[object], tensors: Sequence[object]) -> list[Any]:
    """The reverse of `separate`."""
    rest = iter(tensors)
    return [next(rest) if length is None else length for length in lengths]


def split(x: torch.Tensor, plan: AxisPlan, sizes: Sequence[Any]) -> torch.Tensor:
    """Reshape to one dimension for each axis of the input."""
    if all(len(group) == 1 for group in plan.inputs):
        return x
    return x.reshape([sizes[axis] for axis in plan.split])


def permute(x: torch.Tensor, places: Sequence[int]) -> torch.Tensor:
    """x.permute(places), or x itself if the order is right already."""
    return x if list(places) == list(range(len(places))) else x.permute(list(places))


def merge(x: torch.Tensor, plan: AxisPlan, sizes: Sequence[object]) -> torch.Tensor:
    """Reshape from one dimension for each axis to the dimensions of the output."""
    if all(len(group) == 1 for group in plan.outputs):
        return x
    return x.reshape([product([sizes[axis] for axis in group]) for group in plan.outputs])


class CustomRearrange(Stepwise, torch.nn.Module):
    """`einops.layers.torch.Rearrange` that exports to ONNX right and with few nodes, without patching.

    pattern: an einops pattern, e.g. "b c (h p1) (w p2) -> b (h w) (p1 p2 c)"; axes_lengths: e.g. p1=16, p2=16.
    Takes and returns one tensor of any dtype, with any dimension dynamic, under torch.jit.script, under
    `torch.onnx.export` with `dynamo=True` and `dynamo=False`, and in eager. Has no parameters.

    Raises einops.EinopsError, in einops' own words, for a pattern or a size that einops refuses.
    Source: https://einops.rocks/api/rearrange
    """

    def __init__(self, pattern: str, **axes_lengths: int) -> None:
        super().__init__()
        # Here and not above: `import onnxpatch` works without einops.
        from einops.layers.torch import Rearrange

        Rearrange(pattern, **axes_lengths)  # raises for what einops refuses
        self.pattern = pattern
        self.axes_lengths = axes_lengths
        vars(self).update(stepwise(pattern, "rearrange", axes_lengths))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.jit.is_scripting():  # type: ignore[attr-defined]
            return self.onnxpatch_steps_applied(x)
        else:  # torch.jit.script would compile a return after the if, too
            return rearranged_by(self, x)

    def extra_repr(self) -> str:
        return ", ".join([repr(self.pattern), *(f"{name}={length}" for name, length in self.axes_lengths.items())])


def rearranged_by(module: Any, x: torch.Tensor) -> torch.Tensor:
    """The output of a module with einops' `pattern` and `axes_lengths` for `x`; `stepwise` has prepared it."""
    plan, given = module.onnxpatch_plans.get(x.dim()), module.onnxpatch_given
    if plan is None or plan.refuses(numbers(x.shape), given):
        refuse(x.shape, module.pattern, module.axes_lengths, "rearrange", module)
    return rearrange(x, plan, given)
