"""An einops pattern as a fixed plan: which axes each dimension is made of, as integers and tuples.

The pattern is read once; what is left to do at run time is arithmetic on sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Group = tuple[int, ...]
Operation = Literal["rearrange", "reduce", "repeat"]
_ELLIPSIS = "…"  # how einops' parser spells it


class UnplannedError(Exception):
    """The pattern has no plan: einops is to be called, which does it or says what is wrong with it."""


@dataclass(frozen=True)
class AxisPlan:
    """The axes of a pattern, numbered: those of the input in its order first, then those that the output adds.

    inputs, outputs: per dimension the axes it is made of, outermost first; () is a dimension of length 1.
    fixed: per axis its length where the pattern states it ("(h 2)"), else 0.
    given: per axis the place of its length among the lengths handed in, else -1.
    inferred: per input dimension the axis whose length follows from the dimension's, else -1.
    """

    inputs: tuple[Group, ...]
    outputs: tuple[Group, ...]
    fixed: tuple[int, ...]
    given: tuple[int, ...]
    inferred: tuple[int, ...]

    @property
    def split(self) -> Group:
        """The axes of the input, in its order."""
        return tuple(axis for group in self.inputs for axis in group)

    @property
    def order(self) -> Group:
        """The axes of the output, in its order."""
        return tuple(axis for group in self.outputs for axis in group)

    @property
    def reduced(self) -> Group:
        """Axes of the input that the output lacks."""
        return tuple(axis for axis in self.split if axis not in set(self.order))

    @property
    def added(self) -> Group:
        """Axes of the output that the input lacks."""
        return tuple(axis for axis in self.order if axis not in set(self.split))

    def lengths(self, shape: Sequence[object], given: Sequence[object] = ()) -> list[Any]:
        """Every axis's length for an input of this shape: numbers, symbolic sizes or 0-d tensors, as they come."""
        known = [given[place] if place >= 0 else length for place, length in zip(self.given, self.fixed, strict=True)]
        for dim, (group, axis) in enumerate(zip(self.inputs, self.inferred, strict=True)):
            if axis >= 0:
                rest = product([known[other] for other in group if other != axis])
                known[axis] = shape[dim] if isinstance(rest, int) and rest == 1 else shape[dim] // rest
        return known

    def refuses(self, shape: Sequence[object], given: Sequence[object]) -> bool:
        """Whether an input of this shape does not fit, as far as that can be told from plain numbers."""
        lengths = self.lengths(shape, given)
        for size, group in zip(shape, self.inputs, strict=True):
            made = product([lengths[axis] for axis in group])
            if isinstance(size, int) and isinstance(made, int) and size != made:
                return True
        return any(isinstance(length, int) and length < 1 for length in given)


def product(lengths: Sequence[Any]) -> Any:
    """The product of sizes of any kind; 1 of none.

    Lengths of 1 are left out: torch's peephole pass stops with an error at a traced size times 1, within a node that is
    recorded with its torch code.
    """
    factors = [length for length in lengths if not isinstance(length, int) or length != 1]
    return functools.reduce(lambda left, right: left * right, factors) if factors else 1


@functools.lru_cache(4096)
def plan_axes(pattern: str, operation: Operation, names: tuple[str, ...], ndim: int) -> AxisPlan:
    """The plan of a pattern for an input of `ndim` dimensions.

    names: the axes whose lengths are handed in, in the order in which they are.
    Raises UnplannedError for what einops refuses; called with the same arguments, it says why.
    """
    sides = pattern.split("->")
    if len(sides) != 2:
        raise UnplannedError(pattern)
    left, right = _expand(_groups(sides[0]), _groups(sides[1]), ndim)
    numbers: dict[Any, int] = {}
    inputs, outputs = (tuple(_number(group, numbers) for group in side) for side in (left, right))
    # An axis without a name is an object of its own that knows its length.
    fixed = tuple(0 if isinstance(axis, str) else int(axis.value) for axis in numbers)
    given = tuple(names.index(axis) if axis in names else -1 for axis in numbers)
    known = {axis for axis in numbers.values() if fixed[axis] > 0 or given[axis] >= 0}
    plan = AxisPlan(inputs, outputs, fixed, given, tuple(_inferred(group, known, pattern) for group in inputs))
    if len(inputs) != ndim or not set(names) <= set(numbers) or not _suits(plan, operation, known):
        raise UnplannedError(pattern)
    return plan


def _suits(plan: AxisPlan, operation: Operation, known: set[int]) -> bool:
    if operation == "rearrange" and any(plan.fixed):
        return False
    if (plan.added and operation != "repeat") or (plan.reduced and operation != "reduce"):
        return False
    return set(plan.added) <= known


def _groups(side: str) -> list[list[Any]]:
    from einops import EinopsError
    from einops.parsing import ParsedExpression

    try:
        # A bare ellipsis is a text, everything else a list: "..." and "(...)" differ in that alone.
        return [[[_ELLIPSIS]] if group == _ELLIPSIS else list(group) for group in ParsedExpression(side).composition]
    except EinopsError as error:
        raise UnplannedError(side) from error


def _expand(left: list[list[object]], right: list[list[object]], ndim: int) -> list[list[list[Any]]]:
    """Both sides with the ellipsis written out as axes of its own."""
    if any(_ELLIPSIS in group for group in left):
        raise UnplannedError("an ellipsis inside parentheses on the left")
    if [[_ELLIPSIS]] not in left:
        if any(_ELLIPSIS in group or group == [[_ELLIPSIS]] for group in right):
            raise UnplannedError("an ellipsis on the right side only")
        return [left, right]
    axes = [f"{_ELLIPSIS}{place}" for place in range(ndim - len(left) + 1)]
    return [[expanded for group in side for expanded in _expand_group(group, axes)] for side in (left, right)]


def _expand_group(group: list[object], axes: list[str]) -> list[list[Any]]:
    if group == [[_ELLIPSIS]]:
        return [[axis] for axis in axes]
    return [[axis for name in group for axis in (axes if name == _ELLIPSIS else [name])]]


def _number(group: list[object], numbers: dict[object, int]) -> Group:
    return tuple(numbers.setdefault(axis, len(numbers)) for axis in group)


def _inferred(group: Group, known: set[int], pattern: str) -> int:
    unknown = [axis for axis in group if axis not in known]
    if len(unknown) > 1:
        raise UnplannedError(pattern)
    return unknown[0] if unknown else -1
