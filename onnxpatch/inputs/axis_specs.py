"""What `dynamic_shapes` may say about one axis, and how to read it.

    None, Dim.STATIC, 3                 the axis keeps the example's size
    "batch", Dim("batch", min=1)        it may change; axes of the same name change together
    "past+n", "2*h", "n+1"              it follows from other sizes: a `SizeExpression`
    2 * Dim("n")                        a derived Dim: twice the size of n
    Dim.DYNAMIC, Dim.AUTO               it may change, and has no name

The classes of these differ between torch 2.6 and 2.13, and some are private: specs are told apart by their attributes.
A `SizeExpression` is a sum of multiples of named dimensions; others, such as products of two sizes, are refused.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
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


def _is_dim(spec: AxisSpec) -> bool:
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
    if not (spec is None or isinstance(spec, int | str) or is_hint(spec) or _is_dim(spec)):
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


_WHAT_IS_UNDERSTOOD = "sums, differences and whole multiples of names are understood, such as past+n, 2*h or n+1"


@dataclass(frozen=True)
class SizeExpression:
    """`constant + sum of factor * size`, over the sizes of named dimensions.

    terms: (name of the dimension, factor), no name twice and no factor 0. text: as the user wrote it.
    """

    terms: tuple[tuple[str, int], ...]
    constant: int = 0
    text: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The dimensions that it is made of."""
        return tuple(name for name, _ in self.terms)

    @property
    def is_plain(self) -> bool:
        """Whether it is one dimension's size itself."""
        return self.constant == 0 and len(self.terms) == 1 and self.terms[0][1] == 1

    def at(self, sizes: Mapping[str, int]) -> int:
        """Its value where the dimensions have these sizes."""
        return self.constant + sum(factor * sizes[name] for name, factor in self.terms)

    def solved(self, value: int) -> int | None:
        """The size of its only dimension at which it has this value; None where there is none."""
        ((_, factor),) = self.terms
        # Of `2*h`, 7 is no size at all.
        size, rest = divmod(value - self.constant, factor)
        return size if rest == 0 and size >= 0 else None


def plain(name: str) -> SizeExpression:
    """The size of one dimension itself."""
    return SizeExpression(((name, 1),), 0, name)


def of_function(name: str, function: Callable[[int], int]) -> SizeExpression:
    """A derived Dim's function of its root. torch allows linear ones alone, so that two values say all of it."""
    factor = int(function(2)) - int(function(1))
    return SizeExpression(((name, factor),), int(function(1)) - factor)


def has_operator(text: str) -> bool:
    """Whether a dimension's text is to be read as an expression, and not as a name."""
    return re.search(r"[-+*/()%]", text) is not None


def parsed(text: str, where: str, known: Collection[str]) -> SizeExpression:
    """What the user's text says of a size; a plain name where it is one after all.

    where: `axis 1 of attention_mask`, for messages. known: the names that axes have by themselves.
    Raises InputError for text that is no sum of multiples, and for a sum of names of which no axis tells the size.
    """
    terms = _read(text, where, known)
    if terms is None:
        return plain(text)
    constant = terms.pop("", 0)
    found = SizeExpression(tuple((n, f) for n, f in terms.items() if f), constant, text)
    unknown = [name for name in found.names if name not in known]
    if unknown == list(found.names) and _may_be_a_name(text) and not constant:
        return plain(text)
    if not found.names:
        raise InputError(f"{where}: {text!r} names no dimension: give the number itself, or None, for a fixed size")
    if len(found.names) > 1 and unknown:
        near = difflib.get_close_matches(unknown[0], list(known), n=1)
        told = f"did you mean {near[0]!r}?" if near else f"the names are {', '.join(sorted(known)) or 'none'}"
        raise InputError(f"{where}: {text!r}: no axis is called {unknown[0]!r} by itself: name that axis, too; {told}")
    return found


def _read(text: str, where: str, known: Collection[str]) -> _Terms | None:
    """The terms of a sum; None for text that is a name."""
    try:
        return _linear(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError:
        if _may_be_a_name(text):
            return None
        raise InputError(f"{where}: {text!r} is no expression of sizes: {_WHAT_IS_UNDERSTOOD}") from None
    except _NotLinearError as error:
        # `height/8` is a name; where an axis is called `height`, a division was meant.
        if _may_be_a_name(text) and not any(name in known for name in re.findall(r"\w+", text)):
            return None
        raise InputError(f"{where}: {text!r}: {error}; {_WHAT_IS_UNDERSTOOD}") from None


def _may_be_a_name(text: str) -> bool:
    """`batch-size`, `height/8`: words without the signs that only expressions have."""
    return re.search(r"[+*()%]", text) is None


class _NotLinearError(Exception):
    pass


_Terms = dict[str, int]  # name -> factor; the constant under the empty name


def _linear(node: ast.expr) -> _Terms:
    if isinstance(node, ast.Name):
        return {node.id: 1}
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return {"": node.value}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _times(_linear(node.operand), -1)
    if isinstance(node, ast.BinOp):
        left, right = _linear(node.left), _linear(node.right)
        if isinstance(node.op, ast.Add):
            return _plus(left, right)
        if isinstance(node.op, ast.Sub):
            return _plus(left, _times(right, -1))
        if isinstance(node.op, ast.Mult):
            return _product(left, right)
        if isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod):
            raise _NotLinearError("a division is not understood: name the smaller size, and write the larger as n*name")
    raise _NotLinearError(f"{ast.unparse(node)} is not understood")


def _product(left: _Terms, right: _Terms) -> _Terms:
    number, other = (left, right) if not set(left) - {""} else (right, left)
    if set(number) - {""}:
        raise _NotLinearError("a product of two sizes is not understood: give that axis a name of its own")
    return _times(other, number.get("", 0))


def _times(terms: _Terms, factor: int) -> _Terms:
    return {name: factor * value for name, value in terms.items()}


def _plus(left: _Terms, right: _Terms) -> _Terms:
    return {name: left.get(name, 0) + right.get(name, 0) for name in dict.fromkeys([*left, *right])}
