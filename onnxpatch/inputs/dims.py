"""The sizes that may change, each with every place where it stands in the arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnxpatch.errors import InputError
from onnxpatch.inputs.dynamic_shapes import AxisSpec, LeafSpec, bounds, dim_name, is_dynamic, is_hint
from onnxpatch.inputs.leaves import Inputs, Leaf


@dataclass
class DynamicDim:
    """One size that may change, with every place where it stands.

    name: the user's, or `x_dim0` where none was given; size: the example's; minimum, maximum: as Dim declares them;
    places: (leaf index, axis, size of that axis as a function of this one's size).
    """

    name: str
    size: int
    minimum: int = 1
    maximum: int | None = None
    named: bool = True
    places: list[tuple[int, int, Callable[[int], int]]] = field(default_factory=list)

    def allows(self, size: int) -> bool:
        return size >= self.minimum and (self.maximum is None or size <= self.maximum)


def _same(size: int) -> int:
    return size


def dynamic_dims(inputs: Inputs, specs: Sequence[LeafSpec]) -> list[DynamicDim]:
    """Every size that may change. Equal names are one size; unnamed ones at one axis with one size move together."""
    dims: dict[Any, DynamicDim] = {}
    for leaf in inputs.leaves:
        for axis, spec in sorted(specs[leaf.index].items()):
            if is_dynamic(spec):
                _place(dims, leaf, axis, spec)
    return list(dims.values())


def shape_at(leaf: Leaf, dims: Sequence[DynamicDim], sizes: Mapping[str, int]) -> list[int]:
    """The shape of one leaf at these sizes; those that are not named stay the example's. No tensor: []."""
    shape = list(leaf.value.shape) if leaf.is_tensor else []
    for dim in dims:
        for index, axis, function in dim.places:
            if index == leaf.index:
                shape[axis] = int(function(sizes.get(dim.name, dim.size)))
    return shape


def _place(dims: dict[Any, DynamicDim], leaf: Leaf, axis: int, spec: AxisSpec) -> None:
    size = leaf.value.shape[axis]
    root, function = getattr(spec, "root", spec), getattr(spec, "fn", None)
    if function is not None:
        size = _solve(function, size, leaf, axis)
    key = (axis, size) if is_hint(root) else dim_name(leaf, axis, root)
    minimum, maximum = bounds(root)
    if key not in dims:
        dims[key] = DynamicDim(dim_name(leaf, axis, root), size, max(1, minimum), maximum, not is_hint(root))
    elif dims[key].size != size:
        raise InputError(f"dimension {key!r} is {dims[key].size} in one input and {size} in {leaf.name}, axis {axis}")
    dims[key].places.append((leaf.index, axis, function or _same))


def _solve(function: Callable[[int], int], size: int, leaf: Leaf, axis: int) -> int:
    """The root's size from that of a derived Dim (increasing and linear, as torch.export has them)."""
    for root in range(size + 1):
        if function(root) == size:
            return root
    raise InputError(f"axis {axis} of {leaf.name} is {size}, which its derived Dim cannot be")
