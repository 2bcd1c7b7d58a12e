"""`AxisPlan`: an einops pattern as numbers: which axes each dimension is made of. With einops' own errors about one.

    "b (h p) -> b h p"     axes: b 0, h 1, p 2     inputs ((0,), (1, 2))     outputs ((0,), (1,), (2,))

The pattern is parsed once. At run time only sizes are computed. An error has the path of the module that called einops.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeVar

import torch

from onnxpatch.errors import RefusedError
from onnxpatch.formulas.nodes import as_ints
from onnxpatch.settings import module_path

Group = tuple[int, ...]
Operation = Literal["rearrange", "reduce", "repeat"]
_ELLIPSIS = "…"  # as einops' parser writes it
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class AxisPlan:
    """The axes of a pattern, numbered: first those of the input in order, then those that the output adds.

    inputs, outputs: for each dimension its axes, outermost first; () is a dimension of length 1.
    fixed: for each axis its length in the pattern ("(h 2)"), or 0.
    given: for each axis the index of its length among the given ones, or -1.
    inferred: for each input dimension the axis whose length is computed from the dimension's, or -1.
    """

    inputs: tuple[Group, ...]
    outputs: tuple[Group, ...]
    fixed: tuple[int, ...]
    given: tuple[int, ...]
    inferred: tuple[int, ...]

    @property
    def split(self) -> Group:
        """The axes of the input, in order."""
        return tuple(axis for group in self.inputs for axis in group)

    @property
    def order(self) -> Group:
        """The axes of the output, in order."""
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
        """The length of every axis for an input of this shape: ints, symbolic sizes or 0-d tensors."""
        known = [given[place] if place >= 0 else length for place, length in zip(self.given, self.fixed, strict=True)]
        for dim, (group, axis) in enumerate(zip(self.inputs, self.inferred, strict=True)):
            if axis >= 0:
                # Given lengths divide the dimension: what is left is the axis without one.
                rest = product([known[other] for other in group if other != axis])
                known[axis] = shape[dim] if isinstance(rest, int) and rest == 1 else shape[dim] // rest
        return known

    def refuses(self, shape: Sequence[object], given: Sequence[object]) -> bool:
        """Whether an input of this shape does not fit the pattern, as far as its sizes are ints."""
        lengths = self.lengths(shape, given)
        for size, group in zip(shape, self.inputs, strict=True):
            made = product([lengths[axis] for axis in group])
            if isinstance(size, int) and isinstance(made, int) and size != made:
                return True
        # Left to einops, which has an error of its own for it.
        return any(isinstance(length, int) and length < 1 for length in given)


def product(lengths: Sequence[Any]) -> Any:
    """The product of sizes of any kind; 1 for none.

    Lengths of 1 are left out, since torch's peephole pass fails at a traced size times 1.
    """
    factors = [length for length in lengths if not isinstance(length, int) or length != 1]
    return functools.reduce(lambda left, right: left * right, factors) if factors else 1


@functools.lru_cache(4096)
def plan_axes(pattern: str, operation: Operation, names: tuple[str, ...], ndim: int) -> AxisPlan:
    """The plan of a pattern for an input of `ndim` dimensions.

    names: the axes whose lengths are given, in order. Raises RefusedError for a pattern that einops refuses.
    """
    numbers: dict[Any, int] = {}
    inputs, outputs = (tuple(_number(group, numbers) for group in side) for side in sides_of(pattern, ndim))
    # einops' parser has an object with its length for an axis without a name.
    fixed = tuple(0 if isinstance(axis, str) else int(axis.value) for axis in numbers)
    given = tuple(names.index(axis) if axis in names else -1 for axis in numbers)
    known = {axis for axis in numbers.values() if fixed[axis] > 0 or given[axis] >= 0}
    plan = AxisPlan(inputs, outputs, fixed, given, tuple(_inferred(group, known, pattern) for group in inputs))
    if len(inputs) != ndim or not set(names) <= set(numbers) or not _suits(plan, operation, known):
        raise RefusedError(pattern)
    return plan


def sides_of(pattern: str, ndim: int) -> list[list[list[Any]]]:
    """[left, right] of a pattern: for each dimension its axes, those of an ellipsis for an input of `ndim` dimensions.

    Raises RefusedError for what einops cannot parse.
    """
    sides = pattern.split("->")
    if len(sides) != 2:
        raise RefusedError(pattern)
    return _expand(_groups(sides[0]), _groups(sides[1]), ndim)


def _suits(plan: AxisPlan, operation: Operation, known: set[int]) -> bool:
    # einops refuses numbers other than 1 in a rearrange.
    if operation == "rearrange" and any(plan.fixed):
        return False
    if (plan.added and operation != "repeat") or (plan.reduced and operation != "reduce"):
        return False
    # The length of a new axis cannot be inferred from the input.
    return set(plan.added) <= known


def _groups(side: str) -> list[list[Any]]:
    # einops is optional, and this package is imported without it too.
    from einops import EinopsError
    from einops.parsing import ParsedExpression

    try:
        # The parser gives a str for "..." and a list for everything else, also for "(...)".
        return [[[_ELLIPSIS]] if group == _ELLIPSIS else list(group) for group in ParsedExpression(side).composition]
    except EinopsError as error:
        raise RefusedError(side) from error


def _expand(left: list[list[object]], right: list[list[object]], ndim: int) -> list[list[list[Any]]]:
    """Both sides with the ellipsis replaced by axes."""
    # einops refuses it too: nothing says how many axes are inside.
    if any(_ELLIPSIS in group for group in left):
        raise RefusedError("an ellipsis inside parentheses on the left")
    if [[_ELLIPSIS]] not in left:
        if any(_ELLIPSIS in group or group == [[_ELLIPSIS]] for group in right):
            raise RefusedError("an ellipsis on the right side only")
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
        raise RefusedError(pattern)
    return unknown[0] if unknown else -1


def module_place(module: torch.nn.Module | None = None) -> str:
    """The path of the module (default: of the module whose code runs), as "module 'encoder.patch'"."""
    found = module if module is not None else _caller()
    if found is None:
        return "outside any module"
    path = module_path(found)
    return f"module {path!r} ({type(found).__name__})" if path else f"module {type(found).__name__}"


def _caller() -> torch.nn.Module | None:
    frame = inspect.currentframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, torch.nn.Module):
            return owner
        frame = frame.f_back
    return None


def refuse(
    shape: Sequence[object],
    pattern: str,
    lengths: Mapping[str, object],
    reduction: str,
    module: torch.nn.Module | None = None,
) -> NoReturn:
    """Raise einops' error for an input of this shape, with the module's path.

    reduction: "rearrange", "repeat" or the name of a reduction.
    Raises EinopsError.
    """
    import einops
    import numpy as np

    given = dict(zip(lengths, as_ints(list(lengths.values())), strict=True))
    # einops raises by the shape alone. This array has strides of 0, so no memory is taken, however large the shape is.
    empty = np.broadcast_to(np.zeros(()), [size if isinstance(size, int) else 1 for size in as_ints(shape)])
    try:
        if reduction in ("rearrange", "repeat"):
            getattr(einops, reduction)(empty, pattern, **given)
        else:
            einops.reduce(empty, pattern, reduction, **given)
    except einops.EinopsError as error:
        raise einops.EinopsError(f"{error}\n In {module_place(module)}.") from None
    # einops accepted the shape with 1 for each dynamic size, and yet there is no plan for it.
    raise einops.EinopsError(f"{reduction} {pattern!r} does not fit shape {list(shape)}.\n In {module_place(module)}.")


def explained(call: Callable[[], Answer]) -> Answer:
    """The result of a call of einops. An error keeps its type and text, and gets the path of the module."""
    from einops import EinopsError

    try:
        return call()
    except (EinopsError, NotImplementedError, TypeError, ValueError) as error:
        # A subclass may not be made from one text.
        if type(error) not in (EinopsError, NotImplementedError, TypeError, ValueError):
            raise
        raise type(error)(f"{error}\n In {module_place()}.") from None
