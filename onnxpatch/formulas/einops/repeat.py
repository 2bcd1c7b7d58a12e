"""einops.repeat from a plan, in torch and in ONNX nodes: Resize for elements repeated in place."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from onnxpatch.formulas.einops.arrange import arrange
from onnxpatch.formulas.einops.axes import AxisPlan, Group
from onnxpatch.formulas.einops.graph_sizes import ONE
from onnxpatch.formulas.einops.layout import Layout, scattered
from onnxpatch.formulas.einops.rearrange import merge, permute, separate, split, start, together
from onnxpatch.formulas.nodes import Recipe, Value, Writer, run

# The dtypes for which onnxruntime has a Resize.
_RESIZABLE = (torch.float16, torch.float32, torch.int32, torch.int8, torch.uint8)


def repeat(x: torch.Tensor, plan: AxisPlan, given: Sequence[object] = ()) -> torch.Tensor:
    """The tensor rearranged and repeated along the axes that the input lacks.

    given: the lengths that the plan's pattern leaves to the caller.
    """
    lengths, tensors = separate(given)
    kept = tuple(axis for axis in plan.order if axis not in plan.added)

    def in_torch(x: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        sizes = plan.lengths(x.shape, together(lengths, tensors))
        x = permute(split(x, plan, sizes), [plan.split.index(axis) for axis in kept])
        for place, axis in enumerate(plan.order):
            x = x.unsqueeze(place) if axis in plan.added else x
        # torch's peephole pass fails at an expand that changes nothing.
        if any(not isinstance(sizes[axis], int) or sizes[axis] != 1 for axis in plan.added):
            x = x.expand([sizes[axis] if axis in plan.added else -1 for axis in plan.order])
        return merge(x, plan, sizes)

    def in_onnx(writer: Writer, x: Value, *values: Value) -> Value:
        layout = start(writer, x, plan, together(lengths, values))
        bare = [tuple(axis for axis in group if axis not in plan.added) for group in plan.outputs]
        # Repeated once: axes of length 1 are put in, and nothing is copied.
        if layout.size(plan.added) == ONE:
            arrange(layout, bare)
            layout.reshape(plan.outputs)
        else:
            _repeat(layout, plan, bare)
        return layout.value

    return run(Recipe(in_torch, in_onnx), x, *tensors)


def _repeat(layout: Layout, plan: AxisPlan, bare: list[Group]) -> None:
    dtype = layout.dtype
    if dtype == torch.bfloat16:  # onnxruntime has no Resize, Tile or Expand for it
        layout.cast(torch.float32)
    if not _resize(layout, plan, bare) and not _tile(layout, plan, bare):
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
    # A dimension of added axes alone has no elements in the input that could be repeated in place.
    new = any(group and not kept for group, kept in zip(plan.outputs, bare, strict=True))
    if factors is None or new or layout.dtype not in _RESIZABLE:
        return False
    arrange(layout, bare)
    scales = layout.writer.floats([float(factor) for factor in factors])
    modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    layout.apply("Resize", None, scales, dims=plan.outputs, **modes)
    return True


def _tile(layout: Layout, plan: AxisPlan, bare: list[Group]) -> bool:
    """Repeat whole dimensions, by Tile. Returns whether it was possible."""
    factors = _factors(layout, plan, last=False)
    new = any(group and not kept for group, kept in zip(plan.outputs, bare, strict=True))
    if factors is None or new:
        return False
    arrange(layout, bare)
    layout.apply("Tile", layout.writer.ints(factors), dims=plan.outputs)
    return True


def _expand(layout: Layout, plan: AxisPlan) -> None:
    """Dimensions of length 1, expanded and merged with their neighbours."""
    dims: list[Group] = []
    for group in plan.outputs:
        dims += _apart(group, plan.added)
    bare = [tuple(axis for axis in group if axis not in plan.added) for group in dims]
    arrange(layout, bare)
    added = [place for place, group in enumerate(dims) if group and group[0] in plan.added]
    layout.apply("Expand", _expanded(layout, dims, added), dims=dims)
    layout.reshape(plan.outputs)


def _apart(group: Group, added: Group) -> list[Group]:
    parts: list[Group] = []
    for axis in group:
        if parts and axis not in added and parts[-1][0] not in added:
            parts[-1] = (*parts[-1], axis)
        else:
            parts.append((axis,))
    return parts or [()]


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
