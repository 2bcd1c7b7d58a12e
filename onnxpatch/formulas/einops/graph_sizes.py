"""`Size`: a size in an exported graph, as a product of an int and of sizes that are known at run time only.

For x of shape [b, 3, H, W] and the pattern `b c (h p) (w q)` with p = q = 16:

    c            Size(3)                            static
    h            Size(1, (_Factor(2, 16, ()),))      dimension 2 of x, divided by 16
    (h w)        Size(1, of both factors)           one Shape of dimensions 2 to 4, one Div, one ReduceProd
    (c h)        Size(3, of one factor)             the same Shape and Div, times 3

Sizes stay in this form until a node needs them, so that equal sizes are recognized and read once.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from onnxpatch.formulas.einops.axes import AxisPlan, product
from onnxpatch.formulas.nodes import Value, Writer


class _Factor(NamedTuple):
    """A dynamic dimension of the source, divided by its static part; with dim -1, a given length."""

    dim: int
    divisor: int
    given: tuple[int, ...]


@dataclass(frozen=True)
class Size:
    """number × factors. Without factors the size is static."""

    number: int
    factors: tuple[_Factor, ...] = ()

    def __mul__(self, other: Size) -> Size:
        return Size(self.number * other.number, tuple(sorted(self.factors + other.factors)))


ONE = Size(1)


def total(sizes: Sequence[Size]) -> Size:
    """The product of sizes."""
    return functools.reduce(operator.mul, sizes, ONE)


class GraphSizes:
    """The sizes of a source tensor and the given lengths, as nodes (`vector`) or as numbers (`number`)."""

    def __init__(self, writer: Writer, source: Value, given: Sequence[object]) -> None:
        self._writer = writer
        self._source = source
        self._given = list(given)
        self._shape = writer.shape(source)
        # A pattern often needs the same sizes in two Reshapes. One object serves one recipe, so no value leaves its
        # graph.
        self._made: dict[tuple[Size, ...], Value] = {}

    def axes(self, plan: AxisPlan) -> list[Size]:
        """The size of every axis."""
        sizes = [
            self._length(place) if place >= 0 else Size(length)
            for place, length in zip(plan.given, plan.fixed, strict=True)
        ]
        for dim, (group, axis) in enumerate(zip(plan.inputs, plan.inferred, strict=True)):
            if axis >= 0:
                sizes[axis] = self._divided(dim, total([sizes[other] for other in group if other != axis]))
        return sizes

    def number(self, size: Size) -> Any:
        """The size as an int or the exporter's symbolic size; None if it has none."""
        numbers = [self._number(factor) for factor in size.factors]
        return None if any(number is None for number in numbers) else product([size.number, *numbers])

    def vector(self, sizes: Sequence[Size]) -> Value:
        """An int64 vector of these sizes, computed in the graph."""
        key = tuple(sizes)
        if key not in self._made:
            self._made[key] = self._vector(key)
        return self._made[key]

    def _length(self, place: int) -> Size:
        length = self._given[place]
        return Size(length) if isinstance(length, int) else Size(1, (_Factor(-1, 1, (place,)),))

    def _divided(self, dim: int, known: Size) -> Size:
        size = self._shape[dim]
        if isinstance(size, int) and not known.factors:
            return Size(size // known.number)
        return Size(1, (_Factor(dim, known.number, tuple(place for f in known.factors for place in f.given)),))

    def _number(self, factor: _Factor) -> Any:
        given = [self._writer.number(self._given[place]) for place in factor.given]
        if None in given:
            return None
        if factor.dim < 0:
            return given[0]
        size = self._shape[factor.dim]
        divisor = product([factor.divisor, *given])
        return size if size is None or (isinstance(divisor, int) and divisor == 1) else size // divisor

    def _vector(self, sizes: tuple[Size, ...]) -> Value:
        if all(not size.factors for size in sizes):
            return self._writer.ints([size.number for size in sizes])
        # One factor each: neighbouring dimensions are read by one Shape and divided together, in fewer nodes than one
        # by one.
        if all(len(size.factors) == 1 for size in sizes):
            return self._scaled(self._factors([size.factors[0] for size in sizes]), sizes)
        if len(sizes) > 1:
            parts = [self.vector([size]) for size in sizes]
            return self._writer.node("Concat", *parts, shape=(len(sizes),), axis=0)
        every = self.vector([Size(1, (factor,)) for factor in sizes[0].factors])
        return self._scaled(self._writer.node("ReduceProd", every, shape=(1,), keepdims=1), sizes)

    def _scaled(self, vector: Value, sizes: tuple[Size, ...]) -> Value:
        if all(size.number == 1 for size in sizes):
            return vector
        numbers = self._writer.ints([size.number for size in sizes])
        return self._writer.node("Mul", vector, numbers, shape=(len(sizes),))

    def _factors(self, factors: list[_Factor]) -> Value:
        parts = []
        while factors:
            run = _run(factors)
            parts.append(self._run(factors[:run]))
            factors = factors[run:]
        count = sum(size for _, size in parts)
        values = [value for value, _ in parts]
        return values[0] if len(values) == 1 else self._writer.node("Concat", *values, shape=(count,), axis=0)

    def _run(self, factors: list[_Factor]) -> tuple[Value, int]:
        """(value, count): neighbouring dimensions read by one Shape, or a single factor with given lengths."""
        first, count = factors[0], len(factors)
        if first.dim < 0:
            return self._writer.length(self._given[first.given[0]]), 1
        read = self._read(first.dim, first.dim + count)
        divisors = self._writer.ints([factor.divisor for factor in factors])
        if any(factor.divisor != 1 for factor in factors):
            read = self._writer.node("Div", read, divisors, shape=(count,))
        for place in first.given:
            read = self._writer.node("Div", read, self._writer.length(self._given[place]), shape=(1,))
        return read, count

    def _read(self, start: int, end: int) -> Value:
        ints, shape = self._writer.ints, (end - start,)
        like = ints([0])
        # From opset 15 on Shape has start and end.
        if self._writer.opset >= 15:
            return self._writer.node("Shape", self._source, like=like, shape=shape, start=start, end=end)
        whole = self._writer.node("Shape", self._source, like=like, shape=(len(self._shape),))
        return self._writer.node("Slice", whole, ints([start]), ints([end]), shape=shape)


def _run(factors: list[_Factor]) -> int:
    """How many of the first factors are neighbouring dimensions without given lengths."""
    count = 1
    if factors[0].given:
        return count
    while count < len(factors) and not factors[count].given and factors[count].dim == factors[0].dim + count:
        count += 1
    return count
