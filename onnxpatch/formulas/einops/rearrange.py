"""einops.rearrange from a plan: in torch, in ONNX nodes, and in a layer that torch.jit.script can compile.

For the layer a plan is nested tuples of ints: it has no dict of plans and no parser. `CustomRearrange` is made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from onnxpatch.errors import RefusedError
from onnxpatch.formulas.einops.axes import AxisPlan, Operation, plan_axes, product, refuse
from onnxpatch.formulas.einops.layout import Layout
from onnxpatch.formulas.einops.reorder_axes import reorder_axes
from onnxpatch.formulas.nodes import Value, Writer, as_ints, run
from onnxpatch.formulas.symbolic import empty_at_first

REDUCTIONS = ("rearrange", "min", "max", "sum", "mean", "prod")  # scripted code uses the index
_MOST_DIMENSIONS = 8  # einops' limit for a layer with an ellipsis


def plans_by_rank(pattern: str, operation: Operation, names: Sequence[str]) -> dict[int, AxisPlan]:
    """The plan for every number of dimensions that the pattern fits: several if it has an ellipsis."""
    plans = {}
    for ndim in range(_MOST_DIMENSIONS + 1):
        try:
            plans[ndim] = plan_axes(pattern, operation, tuple(names), ndim)
        except RefusedError:
            continue
    return plans


def stepwise(pattern: str, reduction: str, lengths: Mapping[str, int]) -> dict[str, object]:
    """The attributes that a `Stepwise` module needs. Raises RefusedError where no input fits the pattern."""
    plans = plans_by_rank(pattern, "rearrange" if reduction == "rearrange" else "reduce", tuple(lengths))
    if not plans:
        raise RefusedError(pattern)
    given = tuple(int(length) for length in lengths.values())
    return {
        "onnxpatch_plans": plans,
        "onnxpatch_given": given,
        "onnxpatch_steps": tuple(_steps(ndim, plan, given) for ndim, plan in plans.items()),
        "onnxpatch_one_rank": len(plans) == 1,
        "onnxpatch_reduction": REDUCTIONS.index(reduction),
    }


def _steps(ndim: int, plan: AxisPlan, given: Sequence[int]) -> tuple[object, ...]:
    """(dimensions, split?, [(dim, divisor, length)], reduced?, [dim], permute?, [dim], merge?, [(start, end)])"""
    known = [given[place] if place >= 0 else length for place, length in zip(plan.given, plan.fixed, strict=True)]
    split = tuple(_source(axis, plan, known) for axis in plan.split)
    reduced = tuple(place for place in reversed(range(len(plan.split))) if plan.split[place] in plan.reduced)
    kept = [axis for axis in plan.split if axis not in plan.reduced]
    order = tuple(kept.index(axis) for axis in plan.order)
    merge, end = [], 0
    for group in plan.outputs:
        merge.append((end, end + len(group)))
        end += len(group)
    split_needed = any(len(group) != 1 for group in plan.inputs)
    merge_needed = any(len(group) != 1 for group in plan.outputs)
    permute_needed = order != tuple(range(len(order)))
    return ndim, split_needed, split, bool(reduced), reduced, permute_needed, order, merge_needed, tuple(merge)


def _source(axis: int, plan: AxisPlan, known: Sequence[int]) -> tuple[int, int, int]:
    """(dimension of the input, divisor, length): an axis's length is the dimension's over the divisor, or given."""
    if axis not in plan.inferred:
        return 0, 1, known[axis]
    dim = plan.inferred.index(axis)
    divisor = 1
    for other in plan.inputs[dim]:
        divisor *= known[other] if other != axis else 1
    return dim, divisor, 0


class Stepwise:
    """A base for modules with the attributes of `stepwise`: methods that torch.jit.script compiles."""

    if TYPE_CHECKING:  # at run time torch.jit.script would use the annotations; what it infers is more exact
        onnxpatch_steps: tuple[Any, ...]
        onnxpatch_one_rank: bool
        onnxpatch_reduction: int

    def onnxpatch_steps_applied(self, x: torch.Tensor) -> torch.Tensor:
        """The input split, reduced, permuted and merged by its plan."""
        for ndim, split, lengths, reduce, reduced, permute, order, merge, groups in self.onnxpatch_steps:
            if self.onnxpatch_fits(x, ndim):
                if split:
                    sizes: list[int] = []
                    for dim, divisor, length in lengths:
                        sizes.append(length if length > 0 else x.size(dim) // divisor)
                    x = x.reshape(sizes)
                if reduce:
                    dims: list[int] = []
                    for dim in reduced:
                        dims.append(dim)
                        if self.onnxpatch_reduction == 5:  # one at a time, the last first
                            x = x.prod(dim)
                    x = self.onnxpatch_reduced(x, dims)
                if permute:
                    x = x.permute(order)
                if merge:
                    merged: list[int] = []
                    for start, end in groups:
                        size = 1
                        for place in range(start, end):
                            size = size * x.size(place)
                        merged.append(size)
                    x = x.reshape(merged)
                return x
        return x

    def onnxpatch_fits(self, x: torch.Tensor, ndim: int) -> bool:
        """Whether the plan for this number of dimensions is the input's."""
        return self.onnxpatch_one_rank or x.dim() == ndim

    def onnxpatch_reduced(self, x: torch.Tensor, dims: list[int]) -> torch.Tensor:
        """The input reduced over these dimensions, which are removed. Products are computed before."""
        kind = x.dtype
        narrow = kind == torch.bool or kind == torch.uint8 or kind == torch.int8 or kind == torch.int16
        narrow = narrow and self.onnxpatch_reduction < 3
        if narrow:
            x = x.to(torch.int64)  # runtimes do not compare bools and narrow ints
        if self.onnxpatch_reduction == 1:
            x = x.amin(dims)
        elif self.onnxpatch_reduction == 2:
            x = x.amax(dims)
        elif self.onnxpatch_reduction == 3:
            x = x.sum(dims)
        elif self.onnxpatch_reduction == 4:
            x = x.mean(dims)
        if narrow:
            x = x.to(kind)
        return x


def rearrange_axes(x: torch.Tensor, plan: AxisPlan, given: Sequence[object] = (), filled: bool = False) -> torch.Tensor:
    """The tensor rearranged.

    given: the lengths that the pattern leaves to the caller. filled: eager refuses an empty tensor.
    """
    # Only names differ: no node at all.
    if plan.inputs == plan.outputs:
        return x

    def in_onnx(layout: Layout) -> None:
        layout.filled = filled
        reorder_axes(layout, plan.outputs)

    order = [plan.split.index(axis) for axis in plan.order]
    return run_plan(x, plan, given, lambda x, sizes: permute_axes(x, order), in_onnx)


def run_plan(
    x: torch.Tensor,
    plan: AxisPlan,
    given: Sequence[object],
    in_torch: Callable[[torch.Tensor, list[Any]], torch.Tensor],
    in_onnx: Callable[[Layout], object],
) -> torch.Tensor:
    """The output of a plan. given: the lengths that the pattern leaves to the caller.

    in_torch: from one dimension for each axis of the input, and the sizes of all axes, to one for each of the output.
    in_onnx: writes the nodes of the same.
    """
    # Under trace, sizes are tensors and inputs of the recipe.
    tensors = [length for length in given if isinstance(length, torch.Tensor)]

    def lengths(values: Sequence[object]) -> list[Any]:
        rest = iter(values)
        return [next(rest) if isinstance(length, torch.Tensor) else length for length in given]

    def eager(x: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        sizes = plan.lengths(x.shape, lengths(values))
        if any(len(group) != 1 for group in plan.inputs):
            x = x.reshape([sizes[axis] for axis in plan.split])
        return merge_axes(in_torch(x, sizes), plan, sizes)

    def nodes(writer: Writer, x: Value, *values: Value) -> Value:
        layout = Layout(writer, x, plan, lengths(values))
        layout.may_be_empty = may_be_empty
        in_onnx(layout)
        return layout.value

    may_be_empty = not x.is_complex() and empty_at_first(x)  # one of two parts is computed by torch
    return run((eager, nodes), x, *tensors)


def permute_axes(x: torch.Tensor, places: Sequence[int]) -> torch.Tensor:
    """x.permute(places), or x itself if the order is right already."""
    return x if list(places) == list(range(len(places))) else x.permute(list(places))


def merge_axes(x: torch.Tensor, plan: AxisPlan, sizes: Sequence[object]) -> torch.Tensor:
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
    if plan is None or plan.refuses(as_ints(x.shape), given):
        refuse(x.shape, module.pattern, module.axes_lengths, "rearrange", module)
    return rearrange_axes(x, plan, given)
