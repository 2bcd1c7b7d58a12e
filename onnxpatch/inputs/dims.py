"""`DynamicDim`: one size that may change, with every axis of the arguments that has it.

`dynamic_shapes=({0: "batch", 1: "n"}, {0: "batch"})` gives two dimensions. `batch` has two places, axis 0 of both
arguments: a probe that sets it to 5 resizes both. A derived Dim (`2 * n`) is a place of `n` with a function of its
size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from onnxpatch.errors import InputError
from onnxpatch.inputs.axis_specs import AxisSpec, LeafSpec, bounds, is_dynamic, is_hint
from onnxpatch.inputs.dynamic_shapes import dim_name
from onnxpatch.inputs.leaves import Inputs, Leaf


@dataclass
class DynamicDim:
    """One size that may change, and every axis that has it.

    name: the user's, or `x_dim0` where the user gave none (then `named` is False).
    size: its size in the example.
    minimum, maximum: the bounds of the user's Dim; maximum None: no upper bound.
    places: (leaf index, axis, size of that axis as a function of this dimension's size).
    """

    name: str
    size: int
    minimum: int = 1
    maximum: int | None = None
    named: bool = True
    places: list[tuple[int, int, Callable[[int], int]]] = field(default_factory=list)

    def allows(self, size: int) -> bool:
        """Whether `size` is within the declared bounds."""
        return size >= self.minimum and (self.maximum is None or size <= self.maximum)


# What makes two axes one dimension: the same name, or for axes without a name (Dim.DYNAMIC) the same axis and size.
_Key = str | tuple[int, int]


def dynamic_dims(inputs: Inputs, specs: Sequence[LeafSpec]) -> list[DynamicDim]:
    """Every dimension that may change, in the order of the arguments.

    Axes with the same name are one dimension. Unnamed axes (`Dim.DYNAMIC`) are one if axis and size are the same: most
    models take several inputs with one batch size, and probing them apart would only be refused.
    Raises InputError where one name has two sizes in the example.
    """
    dims: dict[_Key, DynamicDim] = {}
    for leaf in inputs.leaves:
        for axis, spec in sorted(specs[leaf.index].items()):
            if is_dynamic(spec):
                _add_place(dims, leaf, axis, spec)
    return list(dims.values())


def shape_at(leaf: Leaf, dims: Sequence[DynamicDim], sizes: Mapping[str, int]) -> list[int]:
    """The shape of one leaf when the dimensions have these sizes.

    sizes: by the name of the dimension; one that is left out keeps the example's size. [] for a leaf without a shape.
    """
    shape = list(leaf.value.shape) if leaf.is_tensor else []
    for dim in dims:
        for index, axis, function in dim.places:
            if index == leaf.index:
                shape[axis] = int(function(sizes.get(dim.name, dim.size)))
    return shape


def _same_size(size: int) -> int:
    return size


def _add_place(dims: dict[_Key, DynamicDim], leaf: Leaf, axis: int, spec: AxisSpec) -> None:
    size = leaf.value.shape[axis]
    root, function = getattr(spec, "root", spec), getattr(spec, "fn", None)
    if function is not None:
        size = _root_size(function, size, leaf, axis)
    name = dim_name(leaf, axis, root)
    key: _Key = (axis, size) if is_hint(root) else name
    minimum, maximum = bounds(root)
    if key not in dims:
        dims[key] = DynamicDim(name, size, max(1, minimum), maximum, not is_hint(root))
    elif dims[key].size != size:
        raise InputError(
            f"dimension {key!r} is {dims[key].size} in one input of the example and {size} in {leaf.name}, axis "
            f"{axis}: give these axes two names, or an example in which they have one size"
        )
    dims[key].places.append((leaf.index, axis, function or _same_size))


def _root_size(function: Callable[[int], int], size: int, leaf: Leaf, axis: int) -> int:
    """The size of `n` at which a Dim derived from it, such as `2 * n`, has this size.

    Sizes are tried from 0: torch.export allows linear, increasing functions only, so the answer is at most `size`.
    """
    for root in range(size + 1):
        if function(root) == size:
            return root
    raise InputError(
        f"axis {axis} of {leaf.name} is {size} in the example, a size that its derived Dim never has: change the Dim "
        "or the example"
    )
