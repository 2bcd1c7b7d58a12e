"""The nodes of a Fourier transform of any length, as a convolution with a chirp (Bluestein), by matrix products.

    X_k = c_k sum_j (x_j c_j) conj(c_(k - j)),   c_k = exp(-pi i k^2 / n)

The sum is a cyclic convolution of any m * m >= 2 n - 1 points. Its transforms are two products with an m x m matrix F
each, and a rotation T between them. The convolution multiplies spectra point by point, so their order does not matter:
the way back takes the same steps backwards, with conjugates.

Layouts: (rows, 2, m, m) has the real part before the imaginary part, (rows, m, 2, m) has them side by side in a row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from onnxpatch.formulas.nodes import Value, Writer
from onnxpatch.formulas.wave_nodes import Length, Sizes, WaveNodes


def write_chirp(writer: Writer, x: Value, parts: int, length: Length, terms: Length) -> Value:
    """The first terms of the transform of n points, of which x has the first: (rows, 1 or 2 parts, some), float32.

    Returns (rows, 2, terms).
    """
    (n, size), (last_term, count) = length, terms
    rows, _, given = writer.shape(x)
    nodes = WaveNodes(writer)
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


def _square(nodes: WaveNodes, n: Value, size: object) -> _Square:
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


def _padded(nodes: WaveNodes, x: Value, points: Value, shape: Sizes) -> Value:
    """Zeros at the end of the last axis, up to `points`."""
    axes = len(shape)
    missing = nodes.add("Sub", points, nodes.axis(x, axes - 1), shape=(1,))
    return nodes.add("Pad", x, nodes.joined(0, (2 * axes,), nodes.ints(*[0] * (2 * axes - 1)), missing), shape=shape)


def _kernel(nodes: WaveNodes, square: _Square, chirp: Value, n: Value) -> Value:
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


def _conjugate(nodes: WaveNodes) -> Value:
    return nodes.add("Reshape", nodes.writer.floats([1.0, -1.0]), nodes.ints(2, 1), shape=(2, 1))


def _forward(nodes: WaveNodes, square: _Square, x: Value, rows: object) -> Value:
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


def _backward(nodes: WaveNodes, square: _Square, x: Value, rows: object) -> Value:
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
