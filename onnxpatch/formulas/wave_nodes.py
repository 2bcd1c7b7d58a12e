"""What the nodes of Fourier transforms need: counting, cosines and sines, and complex numbers as two real parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from onnxpatch.formulas.nodes import Value, Writer

Sizes = Sequence[Any]
# A length of the graph: a value of shape (1,), and the writer's size.
Length = tuple[Value, Any]


class WaveNodes:
    """A writer, and what transforms need of it."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def add(self, op: str, *inputs: Value, shape: Sizes, **attributes: object) -> Value:
        return self.writer.node(op, *inputs, shape=shape, **attributes)

    def ints(self, *values: int) -> Value:
        return self.writer.ints(values)

    def axis(self, x: Value, axis: int) -> Value:
        """A size of x, of shape (1,)."""
        # torch's shape inference under trace overlooks `start` and `end` of Shape: three sizes, where Slice takes one.
        shape = self.writer.node("Shape", x, like=self.ints(0), shape=(len(self.writer.shape(x)),))
        return self.add("Gather", shape, self.ints(axis), axis=0, shape=(1,))

    def steps(self, count: Value, size: object) -> Value:
        """0, 1, ... count - 1."""
        ones = self.add("Expand", self.ints(1), count, shape=(size,))
        return self.add("Reshape", self.add("NonZero", ones, shape=(1, size)), self.ints(-1), shape=(size,))

    def table(self, rows: Value, columns: Value, shape: Sizes) -> Value:
        """j * k for j < rows and k < columns."""
        down = self.add("Unsqueeze", self.steps(rows, shape[0]), self.ints(1), shape=(shape[0], 1))
        return self.add("Mul", down, self.steps(columns, shape[1]), shape=shape)

    def waves(self, turns: Value, points: Value, turn: float, shape: Sizes) -> tuple[Value, Value]:
        """cos and -sin of turns * turn / points."""
        parts = (self.writer.cast(part, torch.float64, of) for part, of in ((turns, shape), (points, (1,))))
        angle = self.add("Div", *parts, shape=shape)
        angle = self.add("Mul", angle, self.writer.scalar(turn, torch.float64), shape=shape)
        angle = self.writer.cast(angle, torch.float32, shape)
        return self.add("Cos", angle, shape=shape), self.add("Neg", self.add("Sin", angle, shape=shape), shape=shape)

    def circle(self, n: Value, size: object) -> tuple[Value, Value]:
        """cos and -sin of 2 pi j / n, for j < n."""
        return self.waves(self.steps(n, size), n, 2 * math.pi, (size,))

    def chirp(self, n: Value, size: object) -> tuple[Value, Value]:
        steps = self.steps(n, size)
        # The square is reduced to one turn, 2 n, while it is a whole number: the sine of a large angle loses digits.
        double = self.add("Add", n, n, shape=(1,))
        turns = self.add("Mod", self.add("Mul", steps, steps, shape=(size,)), double, shape=(size,))
        return self.waves(turns, n, math.pi, (size,))

    def gathered(self, circle: tuple[Value, Value], turns: Value, n: Value, shape: Sizes) -> tuple[Value, Value]:
        """cos and -sin of 2 pi turns / n, from those of one turn."""
        turns = self.add("Mod", turns, n, shape=shape)
        cos, sin = (self.add("Gather", part, turns, axis=0, shape=shape) for part in circle)
        return cos, sin

    def joined(self, axis: int, shape: Sizes, *parts: Value) -> Value:
        return parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=axis, shape=shape)

    def stacked(self, parts: tuple[Value, Value], axis: int, shape: Sizes) -> Value:
        """shape: of the result, with a 2 at the axis."""
        one = tuple(1 if place == axis else size for place, size in enumerate(shape))
        return self.joined(axis, shape, *(self.add("Unsqueeze", part, self.ints(axis), shape=one) for part in parts))

    def negative(self, x: Value) -> Value:
        return self.add("Neg", x, shape=self.writer.shape(x))

    def reshaped(self, x: Value, target: list[Value], shape: Sizes) -> Value:
        return self.add("Reshape", x, self.joined(0, (len(shape),), *target), shape=shape)

    def part(self, x: Value, at: int, axis: int) -> Value:
        shape = [1 if place == axis else size for place, size in enumerate(self.writer.shape(x))]
        return self.add("Gather", x, self.ints(at), axis=axis, shape=shape)

    def product(self, x: Value, y: Value, shape: Sizes, axis: int, axis_of_y: int, parts: int = 2) -> Value:
        """The complex product, with the parts of each along its axis; x may have a real part alone."""
        if parts == 1:
            return self.add("Mul", x, y, shape=shape)
        real, imag = (self.part(y, at, axis_of_y) for at in (0, 1))
        turned = self.joined(axis_of_y, self.writer.shape(y), self.negative(imag), real)
        terms = [self.add("Mul", self.part(x, at, axis), by, shape=shape) for at, by in ((0, y), (1, turned))]
        return self.add("Add", *terms, shape=shape)
