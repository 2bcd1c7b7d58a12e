"""`Layout`: a value in the graph whose dimensions are made of axes, and the fewest nodes that regroup them.

A dynamic size in a Reshape target is copied by a 0 if it stays at its place; else it is computed. A -1 is used only for
a group with the leading dimension: onnxruntime cannot infer it if a copied dimension has length 0, and a batch may
be empty. If eager refuses empty tensors, any dimension may be inferred.

    b n (h d) -> ...    [b, n, 512] to [0, 0, 8, 64]       b and n are copied, no size is read
    b (c r) h w -> ...  [b, 64, h, w]: h moves one place on, where a 0 would copy w. So a dimension of length 1
                        is put in front first: [1, b, 64, h, w] to [-1, 32, 2, 0, 0]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from onnxpatch.formulas.einops.axes import AxisPlan, Group
from onnxpatch.formulas.einops.graph_sizes import ONE, GraphSizes, Size, total
from onnxpatch.formulas.nodes import Value, Writer


class Layout:
    """value: the tensor. dims: for each dimension its axes. axes: the size of every axis. filled: it is never empty.
    may_be_empty: an axis may have length 0 beside the batch's, which a 0 of a Reshape target would take for a copy."""

    filled = may_be_empty = False

    def __init__(self, writer: Writer, value: Value, plan: AxisPlan, given: Sequence[object]) -> None:
        """The layout of the input of a plan. given: the lengths that the pattern leaves to the caller."""
        self.writer, self.value, self.dims = writer, value, tuple(plan.inputs)
        self.sizes = GraphSizes(writer, value, given)
        self.axes = list(self.sizes.axes(plan))

    @property
    def dtype(self) -> torch.dtype:
        return self.writer.dtype(self.value)

    def size(self, group: Group) -> Size:
        """The size of a dimension made of these axes."""
        return total([self.axes[axis] for axis in group])

    def is_static(self, group: Group) -> bool:
        """Whether that size is static."""
        return not self.size(group).factors

    def by_constant(self, old: Sequence[Group], new: Sequence[Group]) -> bool:
        """Whether the Reshape from `old` to `new`, which splits dimensions, needs no computed shape."""
        before, after = [self.size(group) for group in old], [self.size(group) for group in new]
        return constant_target(before, after, self.filled) is not None or self._split_shift(before, after) is not None

    def apply(self, op: str, *inputs: Value | None, dims: Sequence[Group], **attributes: object) -> None:
        """Append a node to the value. dims: the axes of the result."""
        shape = [self.sizes.number(self.size(group)) for group in dims]
        self.value = self.writer.node(op, self.value, *inputs, shape=shape, **attributes)
        self.dims = tuple(dims)

    def cast(self, dtype: torch.dtype) -> None:
        """Convert to another dtype."""
        if dtype != self.dtype:
            shape = [self.sizes.number(self.size(group)) for group in self.dims]
            self.value = self.writer.cast(self.value, dtype, shape)

    def transpose(self, dims: Sequence[Group]) -> None:
        """Transpose to this order."""
        if tuple(dims) != self.dims:
            self.apply("Transpose", dims=dims, perm=_places(self.dims, dims))

    def reshape(self, dims: Sequence[Group]) -> None:
        """Regroup the axes; their order stays."""
        dims = tuple(dims)
        if dims == self.dims:
            return
        old, new = [self.size(group) for group in self.dims], [self.size(group) for group in dims]
        if old == new:  # the axes that moved between dimensions have length 1: no node is needed
            self.dims = dims
        elif self._may_be_zero(new):  # a length of 0 in the target would mean a copy
            self.apply("Reshape", self.sizes.vector(new), dims=dims, allowzero=1)
        elif _without_units(old) == _without_units(new) and self._units(dims):
            return
        elif (target := constant_target(old, new, self.filled)) is not None:
            self._reshape(target, dims)
        # Flatten needs no target, so it serves where no constant target does.
        elif len(new) == 2 and (axis := _flat(old, new)) is not None:
            self.apply("Flatten", dims=dims, axis=axis)
        elif not self._through_units(old, new, dims):
            self.apply("Reshape", self._computed_target(old, new), dims=dims)

    def _may_be_zero(self, sizes: Sequence[Size]) -> bool:
        return Size(0) in sizes or (self.may_be_empty and any(size.factors for size in sizes))

    def unsqueeze(self, places: Sequence[int], dims: Sequence[Group]) -> None:
        """Insert dimensions of length 1 at these positions of the result."""
        self.apply("Unsqueeze", self.writer.ints(places), dims=dims)

    def _reshape(self, target: list[int], dims: Sequence[Group]) -> None:
        if self.writer.wants_inferred and 0 in target and -1 not in target:
            target = [*target]
            target[target.index(0)] = -1
        self.apply("Reshape", self.writer.ints(target), dims=dims)

    def _units(self, dims: tuple[Group, ...]) -> bool:
        """Squeeze or Unsqueeze, if only dimensions of length 1 are removed or added. Returns whether it was done."""
        if len(dims) > len(self.dims):
            places = _inserted(self.dims, dims, self.size)
            if places is not None:
                self.unsqueeze(places, dims)
        else:
            places = _inserted(dims, self.dims, self.size)
            if places is not None:
                self.apply("Squeeze", self.writer.ints(places), dims=dims)
        return places is not None

    def _through_units(self, old: list[Size], new: list[Size], dims: tuple[Group, ...]) -> bool:
        """Insert dimensions of length 1 first, if a constant Reshape target is then possible. Returns whether it is."""
        if (found := self._split_shift(old, new)) is not None:
            units, place, split = found
            self.unsqueeze(list(range(place, place + units)), (*self.dims[:place], *[()] * units, *self.dims[place:]))
            self._reshape(split, dims)
            return True
        for units, place in _shifts(len(old) - len(new), len(new)):
            shifted = [*new[:place], *[ONE] * units, *new[place:]]
            if (target := constant_target(old, shifted, self.filled)) is not None:
                wide = (*dims[:place], *[()] * units, *dims[place:])
                self._reshape(target, wide)
                self.apply("Squeeze", self.writer.ints(range(place, place + units)), dims=dims)
                return True
        return False

    def _split_shift(self, old: list[Size], new: list[Size]) -> tuple[int, int, list[int]] | None:
        """(how many dimensions of length 1 to insert, where in `old`, the constant target that then serves) or None."""
        for units, place in _shifts(len(new) - len(old), len(old)):
            target = constant_target([*old[:place], *[ONE] * units, *old[place:]], new, self.filled)
            if target is not None:
                return units, place, target
        return None

    def _computed_target(self, old: list[Size], new: list[Size]) -> Value:
        copied = [place < len(old) and size == old[place] for place, size in enumerate(new)]
        template = [0 if size.factors else size.number for size in new]
        places = [place for place, size in enumerate(new) if size.factors and not copied[place]]
        may_be = [place for place in places if len(places) > 1 and (self.filled or _leads(old, new[place]))]
        # The size with the most factors takes the most nodes to compute, so the runtime infers that one.
        inferred = max(may_be, key=lambda place: len(new[place].factors), default=None)
        if inferred is not None:
            template[inferred] = -1
            places.remove(inferred)
        places.sort(key=lambda place: new[place].factors)  # one Shape reads neighbouring dimensions
        values = self.sizes.vector([new[place] for place in places])
        return scattered(self.writer, template, places, values)


def scattered(writer: Writer, template: Sequence[int], places: Sequence[int], values: Value) -> Value:
    """A vector of sizes: `values` at these places, the template's numbers elsewhere.

    Not a Concat: onnxruntime replaces a single unknown entry of it by -1, which fails for an empty batch.
    """
    constants = writer.ints(template), writer.ints(places)
    return writer.node("ScatterElements", *constants, values, shape=(len(template),), axis=0)


def constant_target(old: Sequence[Size], new: Sequence[Size], filled: bool = False) -> list[int] | None:
    """A constant Reshape target with zeros and at most one -1; None if sizes have to be computed.

    filled: whether the tensor is never empty.
    """
    target, open_places = [], []
    for place, size in enumerate(new):
        if not size.factors:
            target.append(size.number)
        elif place < len(old) and size == old[place]:
            target.append(0)
        else:
            target.append(-1)
            open_places.append(place)
    if len(open_places) > 1:
        return None
    if open_places and 0 in target and not filled and not _leads(old, new[open_places[0]]):
        return None
    return target


def _leads(old: Sequence[Size], size: Size) -> bool:
    dynamic = [factor for candidate in old for factor in candidate.factors if factor.dim >= 0]
    return bool(dynamic) and min(dynamic) in size.factors


def _flat(old: list[Size], new: list[Size]) -> int | None:
    axes = range(len(old) + 1)
    return next((axis for axis in axes if total(old[:axis]) == new[0] and total(old[axis:]) == new[1]), None)


def _shifts(most: int, places: int) -> list[tuple[int, int]]:
    return [(units, place) for units in range(1, most + 1) for place in range(places + 1)]


def _without_units(sizes: Sequence[Size]) -> list[Size]:
    return [size for size in sizes if size != ONE]


def _places(old: Sequence[Group], new: Sequence[Group]) -> list[int]:
    """The index of each new dimension among the old ones. Those of length 1 are taken in order."""
    places: list[int] = []
    for group in new:
        places.append(next(place for place, one in enumerate(old) if one == group and place not in places))
    return places


def _inserted(few: Sequence[Group], many: Sequence[Group], size: Callable[[Group], Size]) -> list[int] | None:
    """The positions in `many` of dimensions of length 1 that `few` lacks; None if they differ otherwise."""
    places, rest = [], list(few)
    for place, group in enumerate(many):
        if rest and size(rest[0]) == size(group):
            rest.pop(0)
        elif size(group) == ONE:
            places.append(place)
        else:
            return None
    return None if rest else places
