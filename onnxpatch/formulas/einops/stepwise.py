"""A plan as nested tuples of ints, which torch.jit.script can compile: it has no dict of plans and no parser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from onnxpatch.formulas.einops.axes import AxisPlan, Operation, UnplannedError, plan_axes

REDUCTIONS = ("rearrange", "min", "max", "sum", "mean", "prod")  # scripted code uses the index
_MOST_DIMENSIONS = 8  # einops' limit for a layer with an ellipsis


def plans_by_rank(pattern: str, operation: Operation, names: Sequence[str]) -> dict[int, AxisPlan]:
    """The plan for every number of dimensions that the pattern fits: several if it has an ellipsis."""
    plans = {}
    for ndim in range(_MOST_DIMENSIONS + 1):
        try:
            plans[ndim] = plan_axes(pattern, operation, tuple(names), ndim)
        except UnplannedError:
            continue
    return plans


def stepwise(pattern: str, reduction: str, lengths: Mapping[str, int]) -> dict[str, object]:
    """The attributes that a `Stepwise` module needs. Raises UnplannedError where no input fits the pattern."""
    plans = plans_by_rank(pattern, "rearrange" if reduction == "rearrange" else "reduce", tuple(lengths))
    if not plans:
        raise UnplannedError(pattern)
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
