"""What `dynamic_shapes` may say about one axis, and how to read it.

    None, Dim.STATIC, 3                 the axis keeps the example's size
    "batch", Dim("batch", min=1)        it may change; axes of the same name change together
    "past+n", "2*h", "n+1"              it follows from other sizes: a `SizeExpression` (`size_expressions.py`)
    2 * Dim("n")                        a derived Dim: twice the size of n
    Dim.DYNAMIC, Dim.AUTO               it may change, and has no name

The classes of these differ between torch 2.6 and 2.13, and some are private: specs are told apart by their attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import torch

from onnxpatch.errors import InputError

AxisSpec: TypeAlias = object  # one of the forms above
LeafSpec: TypeAlias = dict[int, AxisSpec]  # axis, counted from 0 -> what was asked of it; axes left out are static


def is_hint(spec: AxisSpec) -> bool:
    """Whether a spec is Dim.AUTO, Dim.DYNAMIC or Dim.STATIC, with or without bounds."""
    return type(spec).__name__ == "_DimHint"


def is_dynamic(spec: AxisSpec) -> bool:
    """Whether a spec lets the axis change."""
    if spec is None or isinstance(spec, int):
        return False
    kind = getattr(spec, "type", spec)  # in torch 2.6 a hint is the enum's member itself
    return not (is_hint(spec) and getattr(kind, "name", "") == "STATIC")


def is_dim(spec: AxisSpec) -> bool:
    """Whether a spec is a torch.export.Dim or derived from one."""
    return all(hasattr(spec, name) for name in ("__name__", "min", "max"))  # in torch 2.6 Dim is a function, no class


def bounds(spec: AxisSpec) -> tuple[int, int | None]:
    """(minimum, maximum) that a Dim or a hint declares; 0 and None where it declares none, as torch has it."""
    return _finite(getattr(spec, "min", None)) or 0, _finite(getattr(spec, "max", None))


def _finite(bound: object) -> int | None:
    try:
        number = int(bound)  # type: ignore[call-overload]  # torch writes "no maximum" as sympy's infinity
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None
    # torch writes "no maximum" as a number near sys.maxsize, too.
    return number if abs(number) < 2**31 else None


def checked_leaf_spec(where: str, value: object, spec: object) -> LeafSpec:
    """The spec of one leaf by axis, from a dict or a sequence. Every axis is in range, static sizes are the example's.

    where: the name of the argument or input, for messages. Raises InputError for a spec that does not fit `value`.
    """
    # torch.export too takes an empty dict for a tensor whose sizes are all static.
    if spec is None or (isinstance(spec, dict | tuple | list) and not spec):
        return {}
    if not isinstance(value, torch.Tensor):
        raise InputError(f"{where} is {_named(value)}, which cannot have the dynamic shape {spec!r}: {_remedy(value)}")
    axes = dict(enumerate(spec)) if isinstance(spec, tuple | list) else spec
    if not isinstance(axes, Mapping):
        raise InputError(f"the dynamic shape of {where} must be a dict of axis to name, found {spec!r}")
    return {_axis(where, value, axis): _checked_axis_spec(where, value, axis, axes[axis]) for axis in axes}


def _named(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}" if _holds_tensors(value) else type(value).__name__


def _holds_tensors(value: object) -> bool:
    """Whether it is an object of some library that may have tensors inside, such as a cache of a language model."""
    return hasattr(value, "__dict__") and not isinstance(value, type)


def _remedy(value: object) -> str:
    if not _holds_tensors(value):
        return "only tensors have one; leave it out, or give None"
    return (
        f"torch does not know the tensors inside. Say how a {type(value).__name__} is opened with "
        "torch.utils._pytree.register_pytree_node, or take the tensors as arguments in a wrapper module that makes it"
    )


def _axis(where: str, value: torch.Tensor, axis: object) -> int:
    if not isinstance(axis, int) or not -value.dim() <= axis < value.dim():
        raise InputError(f"{where} has {value.dim()} dimensions {tuple(value.shape)}; there is no axis {axis!r}")
    # Counted from the front from here on, as exporters want it.
    return axis % value.dim()


def _checked_axis_spec(where: str, value: torch.Tensor, axis: int, spec: AxisSpec) -> AxisSpec:
    if not (spec is None or isinstance(spec, int | str) or is_hint(spec) or is_dim(spec)):
        raise InputError(
            f"axis {axis} of {where}: {spec!r} is not understood: give a name, a torch.export.Dim, Dim.DYNAMIC, the "
            "size, or None"
        )
    size = value.shape[axis]
    if isinstance(spec, int) and spec != size:
        raise InputError(f"axis {axis} of {where} is declared {spec}, the example has {size}")
    minimum, maximum = bounds(spec)
    if is_dynamic(spec) and (size < minimum or (maximum is not None and size > maximum)):
        raise InputError(
            f"axis {axis} of {where} is {size} in the example, outside the bounds of its Dim: {minimum} to "
            f"{maximum or 'any'}"
        )
    return spec
