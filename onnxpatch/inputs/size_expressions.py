"""`SizeExpression`: a size that follows from others, a sum of multiples of named dimensions.

    "past+n", "2*h", "n+1"          as dynamic_shapes may have it
    2 * Dim("n")                    a derived Dim of torch

Others, such as products of two sizes, are refused.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from onnxpatch.errors import InputError

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
