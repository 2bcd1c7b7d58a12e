"""The nodes of a Fourier transform: ONNX's DFT, a product with a matrix that the graph computes, or, of any length, a
convolution with a chirp (Bluestein), by matrix products.

    X_k = c_k sum_j (x_j c_j) conj(c_(k - j)),   c_k = exp(-pi i k^2 / n)

The sum is a cyclic convolution of any m * m >= 2 n - 1 points. Its transforms are two products with an m x m matrix F
each, and a rotation T between them. The convolution multiplies spectra point by point, so their order does not matter:
the way back takes the same steps backwards, with conjugates.

Layouts: (rows, 2, m, m) has the real part before the imaginary part, (rows, m, 2, m) has them side by side in a row.
First what every such transform needs: counting, cosines and sines, and complex numbers as two real parts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from onnxpatch.formulas.nodes import Value, Writer
from onnxpatch.formulas.symbolic import example_of

Sizes = Sequence[Any]
# A length of the graph: a value of shape (1,), and the writer's size.
_Length = tuple[Value, Any]


class _WaveNodes:
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


def _chirped(writer: Writer, x: Value, parts: int, length: _Length, terms: _Length) -> Value:
    """The first terms of the transform of n points, of which x has the first: (rows, 1 or 2 parts, some), float32.

    Returns (rows, 2, terms).
    """
    (n, size), (last_term, count) = length, terms
    rows, _, given = writer.shape(x)
    nodes = _WaveNodes(writer)
    chirp = nodes.stacked(nodes.chirp(n, size), 0, (2, size))
    square = _square(nodes, n, size)
    own = nodes.add("Slice", chirp, nodes.ints(0), nodes.axis(x, 2), nodes.ints(1), shape=(2, given))
    data = nodes.product(x, own, (rows, 2, given), 1, 0, parts)
    spectrum = _forward(nodes, square, _padded(nodes, data, square.points, (rows, 2, square.many)), rows)
    kernel = _forward(nodes, square, _kernel(nodes, square, chirp, n), 1)
    m = square.size
    mixed = nodes.product(spectrum, kernel, (rows, m, 2, m), 2, 2)
    found = _backward(nodes, square, mixed, rows)
    found = nodes.add("Slice", found, nodes.ints(0), last_term, nodes.ints(2), shape=(rows, 2, count))
    last = nodes.add("Slice", chirp, nodes.ints(0), last_term, nodes.ints(1), shape=(2, count))
    return nodes.product(found, last, (rows, 2, count), 1, 0)


@dataclass
class _Square:
    """What the transforms of m * m points share. size, double, many: m, 2 m and m * m as the writer's sizes."""

    m: Value
    points: Value
    size: Any
    double: Any
    many: Any
    matrix: Value  # F as a real matrix from the left, [[Re, -Im], [Im, Re]]; from the right it is conj(F)
    mirrored: Value  # its transpose: conj(F) from the left, F from the right
    turn: Value  # T, (m, 2, m)


def _square(nodes: _WaveNodes, n: Value, size: object) -> _Square:
    writer = nodes.writer
    least = nodes.add("Sub", nodes.add("Add", n, n, shape=(1,)), nodes.ints(1), shape=(1,))
    root = nodes.add("Sqrt", writer.cast(least, torch.float64, (1,)), shape=(1,))
    m = writer.cast(nodes.add("Ceil", root, shape=(1,)), torch.int64, (1,))
    points = nodes.add("Mul", m, m, shape=(1,))
    side = _side(size)
    double, many = (None, None) if side is None else (2 * side, side * side)
    products = nodes.table(m, m, (side, side))
    cos, sin = nodes.gathered(nodes.circle(m, side), products, m, (side, side))
    wide = (side, double)
    above = nodes.joined(1, wide, cos, nodes.negative(sin))
    matrix = nodes.joined(0, (double, double), above, nodes.joined(1, wide, sin, cos))
    mirrored = nodes.add("Transpose", matrix, perm=[1, 0], shape=(double, double))
    turn = nodes.stacked(nodes.waves(products, points, 2 * math.pi, (side, side)), 1, (side, 2, side))
    return _Square(m, points, side, double, many, matrix, mirrored, turn)


def _side(size: Any) -> Any:
    """m for a length."""
    if isinstance(size, int):
        return math.isqrt(2 * size - 2) + 1
    # A symbolic size has no square root in torch. This is a declared shape only; the nodes compute the size.
    return None if size is None else 7 * size + 5


def _padded(nodes: _WaveNodes, x: Value, points: Value, shape: Sizes) -> Value:
    """Zeros at the end of the last axis, up to `points`."""
    axes = len(shape)
    missing = nodes.add("Sub", points, nodes.axis(x, axes - 1), shape=(1,))
    return nodes.add("Pad", x, nodes.joined(0, (2 * axes,), nodes.ints(*[0] * (2 * axes - 1)), missing), shape=shape)


def _kernel(nodes: _WaveNodes, square: _Square, chirp: Value, n: Value) -> Value:
    """conj(c) at 0 ... n - 1, zeros, and conj(c) at n - 1 ... 1: negative indices. Scaled for the way back."""
    _, size = nodes.writer.shape(chirp)
    less, more = (None, None) if size is None else (size - 1, square.many - size + 1)
    scale = nodes.add("Div", _conjugate(nodes), nodes.writer.cast(square.points, torch.float32, (1,)), shape=(2, 1))
    back = nodes.add("Mul", chirp, scale, shape=(2, size))
    mirrored = nodes.add("Slice", back, *(nodes.ints(number) for number in (-1, 0, 1, -1)), shape=(2, less))
    rest = nodes.add("Sub", n, nodes.ints(1), shape=(1,))
    filled = _padded(nodes, back, nodes.add("Sub", square.points, rest, shape=(1,)), (2, more))
    whole = nodes.joined(1, (2, square.many), filled, mirrored)
    return nodes.add("Unsqueeze", whole, nodes.ints(0), shape=(1, 2, square.many))


def _conjugate(nodes: _WaveNodes) -> Value:
    return nodes.add("Reshape", nodes.writer.floats([1.0, -1.0]), nodes.ints(2, 1), shape=(2, 1))


def _forward(nodes: _WaveNodes, square: _Square, x: Value, rows: object) -> Value:
    """(rows, 2, m * m) -> its spectrum (rows, m, 2, m)."""
    m, double = square.size, square.double
    twice = nodes.add("Add", square.m, square.m, shape=(1,))
    x = nodes.reshaped(x, [nodes.ints(-1), twice, square.m], (rows, double, m))
    x = nodes.add("MatMul", square.matrix, x, shape=(rows, double, m))
    x = nodes.reshaped(x, [nodes.ints(-1, 2), square.m, square.m], (rows, 2, m, m))
    x = nodes.add("Transpose", x, perm=[0, 2, 1, 3], shape=(rows, m, 2, m))
    x = nodes.product(x, square.turn, (rows, m, 2, m), 2, 1)
    x = nodes.reshaped(x, [nodes.ints(-1), square.m, twice], (rows, m, double))
    x = nodes.add("MatMul", x, square.mirrored, shape=(rows, m, double))
    return nodes.reshaped(x, [nodes.ints(-1), square.m, nodes.ints(2), square.m], (rows, m, 2, m))


def _backward(nodes: _WaveNodes, square: _Square, x: Value, rows: object) -> Value:
    """The way back, unscaled: (rows, m, 2, m) -> (rows, 2, m * m)."""
    m, double = square.size, square.double
    twice = nodes.add("Add", square.m, square.m, shape=(1,))
    x = nodes.reshaped(x, [nodes.ints(-1), square.m, twice], (rows, m, double))
    x = nodes.add("MatMul", x, square.matrix, shape=(rows, m, double))
    x = nodes.reshaped(x, [nodes.ints(-1), square.m, nodes.ints(2), square.m], (rows, m, 2, m))
    turn = nodes.add("Mul", square.turn, _conjugate(nodes), shape=(m, 2, m))
    x = nodes.product(x, turn, (rows, m, 2, m), 2, 1)
    x = nodes.add("Transpose", x, perm=[0, 2, 1, 3], shape=(rows, 2, m, m))
    x = nodes.reshaped(x, [nodes.ints(-1), twice, square.m], (rows, double, m))
    x = nodes.add("MatMul", square.mirrored, x, shape=(rows, double, m))
    return nodes.reshaped(x, [nodes.ints(-1, 2), square.points], (rows, 2, square.many))


# The longest product with a matrix that the graph computes: an entry takes 24 bytes with its index.
LONGEST_PRODUCT = 1024
# One product is faster while n * n < FREE + PER_ROW * rows * n; measured with onnxruntime on the CPU, one thread.
FREE, PER_ROW = 8000, 6
# All n terms, the first n // 2 + 1 of them, or the real parts of all.
Wanted = Literal["all", "half", "real"]


def outputs_of(wanted: Wanted) -> int:
    return 1 if wanted == "real" else 2


def terms_of(length: Any, wanted: Wanted) -> Any:
    return length // 2 + 1 if wanted == "half" else length


def write_dft(writer: Writer, x: Value, length: int, wanted: Wanted, parts: int) -> Value:
    """ONNX's DFT, along the axis before the last: the default of every opset, which name it in different ways."""
    rows, outputs, terms = writer.shape(x)[0], outputs_of(wanted), terms_of(length, wanted)
    x = writer.node("Transpose", x, perm=[0, 2, 1], shape=(rows, length, parts))
    x = writer.node("DFT", x, shape=(rows, length, 2))
    x = writer.node("Transpose", x, perm=[0, 2, 1], shape=(rows, 2, length))
    limits = [writer.ints(numbers) for numbers in ([0, 0], [outputs, terms], [1, 2])]
    return _flat(writer, writer.node("Slice", x, *limits, shape=(rows, outputs, terms)))


def write_chirp(writer: Writer, x: Value, length: int, wanted: Wanted, parts: int) -> Value:
    return _long(writer, x, writer.ints([length]), length, wanted, parts)


def write_either(writer: Writer, x: Value, length: object, wanted: Wanted, parts: int) -> Value:
    known, n, size = _WaveNodes(writer), writer.length(length), writer.number(length)
    if isinstance(length, torch.SymInt) and example_of(length) is None:
        # torch.cond takes no size that data made.
        return _long(writer, x, n, size, wanted, parts)
    minus = lambda a, b: known.add("Sub", a, b, shape=(1,))  # noqa: E731
    times = lambda a, b: known.add("Mul", a, b, shape=(1,))  # noqa: E731
    # Positive where n * n < FREE + PER_ROW * rows * n, and n <= LONGEST_PRODUCT.
    beyond = times(n, minus(n, times(known.axis(x, 0), known.ints(PER_ROW))))
    room = minus(known.ints(FREE), beyond), minus(known.ints(LONGEST_PRODUCT + 1), n)
    is_short = known.add("Max", known.add("Min", *room, shape=(1,)), known.ints(0), shape=(1,))
    short, long = (functools.partial(side, wanted=wanted, parts=parts) for side in (_short, _long))
    rows = writer.shape(x)[0]
    whole = None if rows is None or size is None else rows * outputs_of(wanted) * terms_of(size, wanted)
    return writer.either(is_short, (short, long), x, n, size, shape=(whole,))


def _long(writer: Writer, x: Value, n: Value, size: object, wanted: Wanted, parts: int) -> Value:
    found = _chirped(writer, x, parts, (n, size), _terms(_WaveNodes(writer), n, size, wanted))
    rows, _, count = writer.shape(found)
    if wanted == "real":
        found = writer.node("Gather", found, writer.ints([0]), axis=1, shape=(rows, 1, count))
    return _flat(writer, found)


def _short(writer: Writer, x: Value, n: Value, size: object, wanted: Wanted, parts: int) -> Value:
    """(rows, parts * given) times (parts * given, outputs * terms)."""
    known = _WaveNodes(writer)
    rows, _, given = writer.shape(x)
    points, (terms, count) = known.axis(x, 2), _terms(known, n, size, wanted)
    turns = known.table(points, terms, (given, count))
    cos, sin = known.gathered(known.circle(n, size), turns, n, (given, count))
    # (a + b i) (cos + i sin): the columns of the real part, then those of the imaginary part
    lines = [[cos, sin], [known.negative(sin), cos]][:parts]
    outputs = outputs_of(wanted)
    high, wide = (None, None) if size is None else (parts * given, outputs * count)
    matrix = known.joined(0, (high, wide), *(known.joined(1, (given, wide), *line[:outputs]) for line in lines))
    points = known.add("Mul", points, known.ints(parts), shape=(1,))
    found = known.reshaped(x, [known.ints(-1), points], (rows, high))
    return _flat(writer, known.add("MatMul", found, matrix, shape=(rows, wide)))


def _terms(known: _WaveNodes, n: Value, size: object, wanted: Wanted) -> _Length:
    if wanted != "half":
        return n, size
    terms = known.add("Add", known.add("Div", n, known.ints(2), shape=(1,)), known.ints(1), shape=(1,))
    return terms, None if size is None else terms_of(size, wanted)


def _flat(writer: Writer, x: Value) -> Value:
    sizes = writer.shape(x)
    whole = None if None in sizes else math.prod(sizes)
    return writer.node("Reshape", x, writer.ints([-1]), shape=(whole,))
