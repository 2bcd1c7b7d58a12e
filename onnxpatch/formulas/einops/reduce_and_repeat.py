"""einops.reduce and einops.repeat from a plan, in torch and in ONNX nodes.

A reduction of blocks of static size is a pooling node; elements repeated in place are a Resize.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from onnxpatch.formulas.einops.axes import AxisPlan, Group, refuse
from onnxpatch.formulas.einops.graph_sizes import ONE
from onnxpatch.formulas.einops.layout import Layout, scattered
from onnxpatch.formulas.einops.rearrange import permute_axes, run_plan
from onnxpatch.formulas.einops.reorder_axes import reorder_axes
from onnxpatch.formulas.nodes import Value, as_ints

REDUCTIONS = ("min", "max", "sum", "mean", "prod", "any", "all")
_NODES = {
    "min": "ReduceMin",
    "max": "ReduceMax",
    "sum": "ReduceSum",
    "mean": "ReduceMean",
    "prod": "ReduceProd",
    "any": "ReduceMax",
    "all": "ReduceMin",
}
# dtypes that runtimes reduce. Bools and narrow ints are reduced as int32, bfloat16 as float32.
_REDUCIBLE = (torch.float16, torch.float32, torch.float64, torch.int32, torch.int64)
# The dtypes for which onnxruntime has a Resize.
_RESIZABLE = (torch.float16, torch.float32, torch.int32, torch.int8, torch.uint8)


def reduce_axes(x: torch.Tensor, plan: AxisPlan, reduction: str, given: Sequence[object] = ()) -> torch.Tensor:
    """The tensor reduced over the axes that the output lacks, and rearranged.

    given: the lengths that the plan's pattern leaves to the caller.
    Raises RuntimeError for the mean of integers, as torch does.
    """
    if reduction == "mean" and plan.reduced and not (x.is_floating_point() or x.is_complex()):
        # The recipe would write a ReduceMean of integers, which eager refuses.
        x.mean()  # raises

    def in_torch(x: torch.Tensor, sizes: object) -> torch.Tensor:
        x = reduce_dims(x, reduction, [place for place, axis in enumerate(plan.split) if axis in plan.reduced])
        kept = [axis for axis in plan.split if axis not in plan.reduced]
        return permute_axes(x, [kept.index(axis) for axis in plan.order])

    def in_onnx(layout: Layout) -> None:
        if plan.reduced and not _pool(layout, plan, reduction):
            _reduce(layout, plan, reduction)
        reorder_axes(layout, plan.outputs)

    return run_plan(x, plan, given, in_torch, in_onnx)


def reduced_by(module: Any, x: torch.Tensor) -> torch.Tensor:
    """The output of a module with einops' `pattern`, `reduction` and `axes_lengths`; `stepwise` has prepared it."""
    plan, given = module.onnxpatch_plans.get(x.dim()), module.onnxpatch_given
    if plan is None or plan.refuses(as_ints(x.shape), given):
        refuse(x.shape, module.pattern, module.axes_lengths, module.reduction, module)
    return reduce_axes(x, plan, module.reduction, given)


def reduce_dims(x: torch.Tensor, reduction: str, dims: Sequence[int]) -> torch.Tensor:
    """One of `REDUCTIONS` over these dimensions."""
    if not dims:
        return x
    if reduction not in ("prod", "any", "all"):
        return getattr(x, {"min": "amin", "max": "amax"}.get(reduction, reduction))(list(dims))
    # torch.prod takes one dimension. The last comes first, so that the others keep their numbers.
    for dim in reversed(dims):
        x = getattr(x, reduction)(dim)
    return x


def _result_dtype(dtype: torch.dtype, reduction: str) -> torch.dtype:
    if reduction in ("any", "all"):
        return dtype if dtype == torch.uint8 else torch.bool
    if reduction in ("sum", "prod") and not dtype.is_floating_point:
        return torch.int64
    return dtype


def _reduce(layout: Layout, plan: AxisPlan, reduction: str) -> None:
    """A Reduce node over whole dimensions."""
    result = _result_dtype(layout.dtype, reduction)
    dims = [piece for group in layout.dims for piece in _parts(group, plan.reduced, together=True)]
    layout.reshape(dims)
    if reduction in ("any", "all"):
        # any() and all() of numbers ask what is not 0, which a maximum of them does not tell.
        layout.cast(torch.bool)
    wide = torch.float32 if result == torch.bfloat16 else torch.int32
    layout.cast(result if result in _REDUCIBLE else wide)
    places = [place for place, group in enumerate(dims) if group and group[0] in plan.reduced]
    kept = [group for place, group in enumerate(dims) if place not in places]
    # The axes are an input from opset 18 on, and of ReduceSum from 13 on; before, an attribute.
    if layout.writer.opset >= 18 or reduction == "sum":
        layout.apply(_NODES[reduction], layout.writer.ints(places), dims=kept, keepdims=0)
    else:
        layout.apply(_NODES[reduction], dims=kept, keepdims=0, axes=places)
    layout.cast(result)


def _parts(group: Group, marked: Group, together: bool) -> list[Group]:
    """The dimension, cut between marked axes and others. together: neighbours that are marked stay together, too."""
    parts: list[Group] = []
    for axis in group:
        if parts and (parts[-1][-1] in marked) == (axis in marked) and (together or axis not in marked):
            parts[-1] = (*parts[-1], axis)
        else:
            parts.append((axis,))
    return parts or [()]


def _pool(layout: Layout, plan: AxisPlan, reduction: str) -> bool:
    """A pooling node for blocks of static size in the last dimensions, float32. Returns whether it was possible.

    onnxruntime pools no tensor without elements.
    """
    kernels = [_kernel(layout, group, plan.reduced) for group in layout.dims]
    if layout.may_be_empty or layout.dtype != torch.float32 or reduction in ("prod", "any", "all") or 0 in kernels:
        return False
    kept = [tuple(axis for axis in group if axis not in plan.reduced) for group in layout.dims]
    if set(kernels) == {1}:
        layout.reshape(kept)
        return True
    # Pooling nodes have two dimensions that stay and one to three that are pooled.
    leading = min(next(place for place, kernel in enumerate(kernels) if kernel != 1), 2)
    if len(kernels) - leading > 3:
        return False
    units = [()] * (2 - leading)
    if units:
        places = range(leading, 2)
        layout.unsqueeze(list(places), (*layout.dims[:leading], *units, *layout.dims[leading:]))
    _apply_pool(layout, reduction, kernels[leading:], [*kept[:leading], *units, *kept[leading:]])
    if units:
        layout.apply("Squeeze", layout.writer.ints(places), dims=kept)
    return True


def _kernel(layout: Layout, group: Group, reduced: Group) -> int:
    """The pooling kernel of a dimension; 0 if it is not reduced by blocks of static size."""
    parts = _parts(group, reduced, together=True)
    if parts[0] == () or parts[0][0] not in reduced:
        block = parts[1] if len(parts) == 2 else ()
        return layout.size(block).number if len(parts) < 3 and layout.is_static(block) else 0
    return 0


def _apply_pool(layout: Layout, reduction: str, kernel: list[int], dims: list[Group]) -> None:
    if reduction == "min":
        layout.apply("Neg", dims=layout.dims)
    node = "MaxPool" if reduction in ("max", "min") else "AveragePool"
    layout.apply(node, dims=dims, kernel_shape=kernel, strides=kernel)
    # ONNX has no pooling by minimum, and none by sum.
    if reduction == "min":
        layout.apply("Neg", dims=dims)
    if reduction == "sum":
        count = layout.writer.scalar(float(math.prod(kernel)), torch.float32)
        layout.apply("Mul", count, dims=dims)


def repeat_axes(x: torch.Tensor, plan: AxisPlan, given: Sequence[object] = ()) -> torch.Tensor:
    """The tensor rearranged and repeated along the axes that the input lacks.

    given: the lengths that the plan's pattern leaves to the caller.
    """

    def in_torch(x: torch.Tensor, sizes: list[Any]) -> torch.Tensor:
        x = permute_axes(x, [plan.split.index(axis) for axis in plan.order if axis not in plan.added])
        for place, axis in enumerate(plan.order):
            x = x.unsqueeze(place) if axis in plan.added else x
        # torch's peephole pass fails at an expand that changes nothing.
        if any(not isinstance(sizes[axis], int) or sizes[axis] != 1 for axis in plan.added):
            x = x.expand([sizes[axis] if axis in plan.added else -1 for axis in plan.order])
        return x

    def in_onnx(layout: Layout) -> None:
        bare = [tuple(axis for axis in group if axis not in plan.added) for group in plan.outputs]
        # Repeated once: axes of length 1 are put in, and nothing is copied.
        if layout.size(plan.added) == ONE:
            reorder_axes(layout, bare)
            layout.reshape(plan.outputs)
        else:
            _repeat(layout, plan, bare)

    return run_plan(x, plan, given, in_torch, in_onnx)


def _repeat(layout: Layout, plan: AxisPlan, bare: list[Group]) -> None:
    dtype = layout.dtype
    if dtype == torch.bfloat16:  # onnxruntime has no Resize, Tile or Expand for it
        layout.cast(torch.float32)
    # A dimension of added axes alone has no elements in the input that could be repeated in place.
    new = any(group and not kept for group, kept in zip(plan.outputs, bare, strict=True))
    if new or not (_resize(layout, plan, bare) or _tile(layout, plan, bare)):
        _expand(layout, plan)
    layout.cast(dtype)


def _factors(layout: Layout, plan: AxisPlan, last: bool) -> list[int] | None:
    """How often each output dimension is repeated, if all added axes are last (or first) in their dimension and
    static; else None."""
    factors = []
    for group in plan.outputs:
        added = tuple(axis for axis in group if axis in plan.added)
        end = group[len(group) - len(added) :] if last else group[: len(added)]
        if end != added or not layout.is_static(added):
            return None
        factors.append(layout.size(added).number)
    return factors


def _resize(layout: Layout, plan: AxisPlan, bare: list[Group]) -> bool:
    """Repeat every element next to itself, by Resize. Returns whether it was possible."""
    factors = _factors(layout, plan, last=True)
    if factors is None or layout.dtype not in _RESIZABLE:
        return False
    reorder_axes(layout, bare)
    scales = layout.writer.floats([float(factor) for factor in factors])
    modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    layout.apply("Resize", None, scales, dims=plan.outputs, **modes)
    return True


def _tile(layout: Layout, plan: AxisPlan, bare: list[Group]) -> bool:
    """Repeat whole dimensions, by Tile. Returns whether it was possible."""
    factors = _factors(layout, plan, last=False)
    if factors is None:
        return False
    reorder_axes(layout, bare)
    layout.apply("Tile", layout.writer.ints(factors), dims=plan.outputs)
    return True


def _expand(layout: Layout, plan: AxisPlan) -> None:
    """Dimensions of length 1, expanded and merged with their neighbours."""
    dims = [piece for group in plan.outputs for piece in _parts(group, plan.added, together=False)]
    bare = [tuple(axis for axis in group if axis not in plan.added) for group in dims]
    reorder_axes(layout, bare)
    added = [place for place, group in enumerate(dims) if group and group[0] in plan.added]
    layout.apply("Expand", _expanded(layout, dims, added), dims=dims)
    layout.reshape(plan.outputs)


def _expanded(layout: Layout, dims: list[Group], added: list[int]) -> Value:
    """The shape to expand to; a 1 keeps a dimension."""
    writer = layout.writer
    sizes = [layout.size(dims[place]) for place in added]
    target = [1] * len(dims)
    for place, size in zip(added, sizes, strict=True):
        target[place] = size.number if not size.factors else 1
    open_places = [place for place, size in zip(added, sizes, strict=True) if size.factors]
    if not open_places:
        return writer.ints(target)
    values = layout.sizes.vector([layout.size(dims[place]) for place in open_places])
    return scattered(writer, target, open_places, values)
