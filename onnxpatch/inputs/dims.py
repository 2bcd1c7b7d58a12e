"""`DynamicDim`: one size that may change, with every axis of the arguments that follows it.

`dynamic_shapes=({0: "batch", 1: "n"}, {0: "batch"})` gives two dimensions. `batch` has two places, axis 0 of both
arguments: a probe that sets it to 5 resizes both. An axis of `2*n` is a place of `n`, one of `past+n` a place of both.

`relations` finds what an example's sizes have in common, with sizes at which to try each:

    p=3, n=4, t=7        t = p+n, tried at (p=4, n=4, t=8), (p=6, n=4, t=10), (p=3, n=5, t=8), ...
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from onnxpatch.errors import InputError
from onnxpatch.inputs.axis_specs import (
    AxisSpec,
    LeafSpec,
    SizeExpression,
    bounds,
    has_operator,
    is_dynamic,
    is_hint,
    of_function,
    parsed,
    plain,
)
from onnxpatch.inputs.dynamic_shapes import dim_name
from onnxpatch.inputs.leaves import Inputs, Leaf


class _Place(NamedTuple):
    """An axis whose size follows one or more dimensions. leaf: its index among the leaves of the arguments."""

    leaf: int
    axis: int
    size: SizeExpression


@dataclass
class DynamicDim:
    """One size that may change, and every axis that follows it.

    name: the user's, or `x_dim0` where the user gave none (then `named` is False).
    size: its size in the example.
    minimum, maximum: the bounds of the user's Dim; maximum None: no upper bound. minimum is 0 only where the example
        has that size: torch's own default is 0, so it does not say that a model was made for empty tensors.
    may_be_empty: whether its declaration allows size 0.
    places: at least one of them follows this dimension alone.
    """

    name: str
    size: int
    minimum: int = 1
    maximum: int | None = None
    named: bool = True
    may_be_empty: bool = False
    places: list[_Place] = field(default_factory=list)

    def allows(self, size: int) -> bool:
        """Whether `size` is within the declared bounds."""
        return size >= self.minimum and (self.maximum is None or size <= self.maximum)

    def fills(self, sizes: Mapping[str, int], example: Mapping[str, int]) -> bool:
        """Whether its axes have entries at these sizes, except for those that are empty in the example too."""
        return all(place.size.at(sizes) >= min(1, place.size.at(example)) for place in self.places)

    def size_of(self, shapes: Mapping[int, Sequence[int]]) -> int:
        """Its size when the leaves have these shapes; the example's size if no axis of them follows it alone."""
        for leaf, axis, size in self.places:
            if len(size.terms) == 1 and leaf in shapes:
                solved = size.solved(shapes[leaf][axis])
                return self.size if solved is None else solved
        return self.size


# What makes two axes one dimension: the same name, or for axes without a name (Dim.DYNAMIC) the same axis and size.
_Key = str | tuple[int, int]


def dynamic_dims(inputs: Inputs, specs: Sequence[LeafSpec]) -> list[DynamicDim]:
    """Every dimension that may change, in the order of the arguments.

    Axes with the same name are one dimension. Unnamed axes (`Dim.DYNAMIC`) are one if axis and size are the same: most
    models take several inputs with one batch size, and probing them apart would only be refused.
    Raises InputError where one name has two sizes in the example, and for a text that is no name and no sum.
    """
    dims: dict[_Key, DynamicDim] = {}
    known = {spec for _, _, spec in _dynamic_axes(inputs, specs) if isinstance(spec, str) and not has_operator(spec)}
    # A derived Dim stands for its root, which may be on no axis itself.
    known |= {dim_name(*axis) for axis in map(_root, _dynamic_axes(inputs, specs)) if not isinstance(axis[2], str)}
    # Added last: an axis of `past+n` may come before the axes that are called past and n.
    sums: list[tuple[Leaf, int, SizeExpression]] = []
    for leaf, axis, spec in _dynamic_axes(inputs, specs):
        size = _expression(leaf, axis, spec, known)
        if len(size.terms) > 1:
            sums.append((leaf, axis, size))
        else:
            _add_place(dims, leaf, axis, spec, size)
    for leaf, axis, size in sums:
        _add_sum({dim.name: dim for dim in dims.values()}, leaf, axis, size)
    return list(dims.values())


def shape_at(leaf: Leaf, dims: Sequence[DynamicDim], sizes: Mapping[str, int]) -> list[int]:
    """The shape of one leaf when the dimensions have these sizes.

    sizes: by the name of the dimension; one that is left out keeps the example's size. [] for a leaf without a shape.
    """
    shape = list(leaf.value.shape) if leaf.is_tensor else []
    full = {dim.name: sizes.get(dim.name, dim.size) for dim in dims}
    for dim in dims:
        for place in dim.places:
            if place.leaf == leaf.index:
                shape[place.axis] = place.size.at(full)
    return shape


def _dynamic_axes(inputs: Inputs, specs: Sequence[LeafSpec]) -> Iterator[tuple[Leaf, int, AxisSpec]]:
    for leaf in inputs.leaves:
        for axis, spec in sorted(specs[leaf.index].items()):
            if is_dynamic(spec):
                yield leaf, axis, spec


def _root(axis: tuple[Leaf, int, AxisSpec]) -> tuple[Leaf, int, AxisSpec]:
    leaf, number, spec = axis
    return leaf, number, getattr(spec, "root", spec)


def _expression(leaf: Leaf, axis: int, spec: AxisSpec, known: set[str]) -> SizeExpression:
    """The size that was declared for an axis."""
    if isinstance(spec, str):
        return parsed(spec, f"axis {axis} of {leaf.name}", known) if has_operator(spec) else plain(spec)
    name, function = dim_name(*_root((leaf, axis, spec))), getattr(spec, "fn", None)
    return of_function(name, function) if function is not None else plain(name)


def _add_place(dims: dict[_Key, DynamicDim], leaf: Leaf, axis: int, spec: AxisSpec, expression: SizeExpression) -> None:
    """An axis that follows one dimension, which is new where no other axis has named it yet."""
    root, size = getattr(spec, "root", spec), expression.solved(leaf.value.shape[axis])
    if size is None:
        raise InputError(
            f"axis {axis} of {leaf.name} is {leaf.value.shape[axis]} in the example, a size that "
            f"{expression.text or 'its derived Dim'} never has: change the declaration or the example"
        )
    (name,) = expression.names
    key: _Key = (axis, size) if is_hint(root) else name
    minimum, maximum = bounds(root)
    if key not in dims:
        dims[key] = DynamicDim(name, size, min(size, max(1, minimum)), maximum, not is_hint(root), minimum == 0)
    elif dims[key].size != size:
        raise InputError(
            f"dimension {key!r} is {dims[key].size} in one input of the example and {size} in {leaf.name}, axis "
            f"{axis}: give these axes two names, or an example in which they have one size"
        )
    ((_, factor),) = expression.terms  # unnamed axes take the name of the first of them
    renamed = SizeExpression(((dims[key].name, factor),), expression.constant, expression.text)
    dims[key].places.append(_Place(leaf.index, axis, renamed))


def _add_sum(dims: Mapping[str, DynamicDim], leaf: Leaf, axis: int, expression: SizeExpression) -> None:
    """An axis that follows several dimensions: a place of each."""
    sizes = {name: dims[name].size for name in expression.names}
    size = leaf.value.shape[axis]
    if expression.at(sizes) != size:
        told = ", ".join(f"{name}={value}" for name, value in sizes.items())
        raise InputError(
            f"axis {axis} of {leaf.name} is {size} in the example, {expression.text} is {expression.at(sizes)} "
            f"({told}): change the declaration or the example"
        )
    for name in expression.names:
        dims[name].places.append(_Place(leaf.index, axis, expression))


_LARGEST_FACTOR = 64


@dataclass(frozen=True)
class SizeRelation:
    """A dimension whose size follows from others: name = size."""

    name: str
    size: SizeExpression

    @property
    def words(self) -> str:
        return f"{self.name} = {self.size.text}"

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether these sizes, of all dimensions, have the relation."""
        return sizes[self.name] == self.size.at(sizes)


def relations(dims: Sequence[DynamicDim]) -> Iterator[SizeRelation]:
    """The relations that the example's sizes have: equal sizes, sums of two, multiples."""
    example = {dim.name: dim.size for dim in dims}
    names = [name for name, size in example.items() if size > 1]
    multiples = itertools.product(names, range(2, _LARGEST_FACTOR + 1))
    sums = [*(((name, 1),) for name in names),
            *(((one, 1), (other, 1)) for one, other in itertools.combinations(names, 2)),
            *((one,) for one in multiples)]  # fmt: skip
    for terms in sums:
        text = "+".join(name if factor == 1 else f"{factor}*{name}" for name, factor in terms)
        size = SizeExpression(terms, 0, text)
        for dim in dims:
            plain = all(place.size.is_plain for place in dim.places)
            if plain and dim.name not in size.names and dim.size == size.at(example):
                yield SizeRelation(dim.name, size)


def sizes_with(relation: SizeRelation, dims: Sequence[DynamicDim]) -> Iterator[dict[str, int]]:
    """Other sizes that have the relation: each free dimension alone, and all together."""
    example = {dim.name: dim.size for dim in dims}
    free = [name for name in example if name != relation.name]
    moves = [lambda n: n + 1, lambda n: 2 * n, lambda n: n - 1, lambda n: 2 * n + 1]
    groups = [*([name] for name in relation.size.names), free, *([n] for n in free if n not in relation.size.names)]
    for move, moved in itertools.product(moves, groups):
        sizes = {**example, **{name: move(example[name]) for name in moved}}
        sizes[relation.name] = relation.size.at(sizes)
        if sizes != example and min(sizes.values()) > 0:
            yield sizes
