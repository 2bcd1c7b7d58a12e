"""Discrete Fourier transforms of long axes in O(n log n) or O(n sqrt n), with small constants.

- length n1 * n2: two small matrix products, n1 x n1 and n2 x n2, with a rotation between them;
- a long power of two: ONNX's DFT, whose error in onnxruntime is 1e-6 there (for other lengths it is 1e-5 at 100, 1e-3
  at 10,000 and 1e-2 at 100,000);
- any other length, and a dynamic one: a convolution with a chirp (Bluestein), by transforms of a power of two.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onnxpatch._torch.function_modes import unseen
from onnxpatch.formulas import nodes
from onnxpatch.formulas.nodes import Recipe, Value, Writer
from onnxpatch.formulas.symbolic import example_of

# Up to here one matrix product is fastest; beyond, each factor's matrix may have this size.
SMALL = 256
# The same where the graph computes the matrix, from n * n cosines; the chirp takes three DFTs of twice the length.
SMALL_DYNAMIC = 128

Parts = tuple[Tensor, Tensor]


def is_long(length: Any, dtype: torch.dtype) -> bool:
    """Whether `transform` is better than one product with an n x n matrix. length: an int, or a size of the graph."""
    if dtype != torch.float32 or nodes.target_opset() < 17:  # there is no DFT
        return False
    if isinstance(length, int):
        return length > SMALL
    example = example_of(length)
    return example is None or example > SMALL_DYNAMIC


def transform(real: Tensor, imag: Tensor | None, length: int | None) -> Parts:
    """The forward transform, unscaled, along the last axis: all n terms. float32.

    length: n, if it is static; else None.
    """
    if length is not None and length > 1:
        factors = _factors(length)
        # A prime has only the factors 1 and n: its matrix would be n x n.
        if factors[0] > 1 and factors[1] <= SMALL:
            return _two_products(real, imag, *factors)
    both = torch.stack((real, torch.zeros_like(real) if imag is None else imag), -1)
    power = length is not None and length & (length - 1) == 0
    rows = both.reshape([-1, both.shape[-2], 2])
    found = nodes.run(_DFT if power else _CHIRP, rows).reshape(both.shape)
    return found[..., 0], found[..., 1]


def _factors(n: int) -> tuple[int, int]:
    """n as a product of two factors, as close as possible, the smaller first."""
    small = next(k for k in range(math.isqrt(n), 0, -1) if n % k == 0)
    return small, n // small


# NumPy arrays, not tensors: a tensor that is made while an exporter runs belongs to that export.
@functools.lru_cache(maxsize=32)
def table(rows: int, columns: int, points: int) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin of 2 pi j k / points, for j < rows and k < columns; float32."""
    # The product is reduced to one turn before it is scaled: the sine of a large angle loses digits.
    angles = 2 * np.pi * (np.outer(np.arange(rows), np.arange(columns)) % points) / points
    return np.cos(angles).astype("float32"), np.sin(angles).astype("float32")


def _waves(rows: int, columns: int, points: int, like: Tensor) -> Parts:
    cos, sin = table(rows, columns, points)
    return torch.from_numpy(cos).to(like), torch.from_numpy(-sin).to(like)


def _two_products(real: Tensor, imag: Tensor | None, n1: int, n2: int) -> Parts:
    """Entry j is n2 j1 + j2, term k is k1 + n1 k2: sum over j1, turn by j2 k1 / n, then sum over j2."""
    first, turn, second = (_waves(*sizes, real) for sizes in ((n1, n1, n1), (n1, n2, n1 * n2), (n2, n2, n2)))
    shape = [*real.shape[:-1], n1, n2]
    a = real.reshape(shape)
    mixed = torch.matmul(first[0], a), torch.matmul(first[1], a)
    if imag is not None:
        b = imag.reshape(shape)
        mixed = mixed[0] - torch.matmul(first[1], b), mixed[1] + torch.matmul(first[0], b)
    turned = mixed[0] * turn[0] - mixed[1] * turn[1], mixed[0] * turn[1] + mixed[1] * turn[0]
    x = torch.matmul(turned[0], second[0]) - torch.matmul(turned[1], second[1])
    y = torch.matmul(turned[0], second[1]) + torch.matmul(turned[1], second[0])
    return tuple(part.transpose(-1, -2).reshape(real.shape) for part in (x, y))  # type: ignore[return-value]


def _eager(x: Tensor) -> Tensor:
    # The patches of torch.fft and of complex numbers must not act on the eager form: they call this function.
    with unseen():
        return torch.view_as_real(torch.fft.fft(torch.view_as_complex(x.contiguous()), dim=1))


def _write_dft(writer: Writer, x: Value) -> Value:
    return _dft(writer, x, writer.shape(x))


def _dft(writer: Writer, x: Value, shape: Any, **named: int) -> Value:
    """Along the axis before the last, of (rows, n, 2): the default of every opset, which name it in different ways."""
    return writer.node("DFT", x, shape=shape, **named)


def _write_chirp(writer: Writer, x: Value) -> Value:
    """X_k = c_k sum_j (x_j c_j) conj(c_(k - j)), where c_k = exp(-pi i k^2 / n): a convolution of a power of two."""
    rows, size, _ = writer.shape(x)
    # torch's shape inference under trace overlooks `start` and `end` of Shape: three sizes, where Slice takes one.
    shape = writer.node("Shape", x, like=writer.ints([0]), shape=(3,))
    n = writer.node("Gather", shape, writer.ints([1]), axis=0, shape=(1,))
    chirp, back = _write_waves(writer, n, size, writer.dtype(x))  # (n, 2) each
    points = _write_power(writer, n)
    both = (rows, _power(size), 2)
    pads = [writer.ints([0] * 4), writer.node("Sub", points, n, shape=(1,)), writer.ints([0])]
    data = _write_product(writer, x, chirp, (rows, size, 2))
    data = writer.node("Pad", data, writer.node("Concat", *pads, axis=0, shape=(6,)), shape=both)
    data = _dft(writer, data, both)
    kernel = _write_kernel(writer, back, n, points, (1, *both[1:]))
    kernel = _dft(writer, kernel, (1, *both[1:]))
    mixed = _dft(writer, _write_product(writer, data, kernel, both), both, inverse=1)
    found = writer.node("Slice", mixed, writer.ints([0]), n, writer.ints([1]), shape=(rows, size, 2))
    return _write_product(writer, found, chirp, (rows, size, 2))


def _power(size: Any) -> Any:
    """The smallest power of two of at least 2 n - 1; for a symbolic n, a symbolic size of its own."""
    if isinstance(size, int):
        return 1 << (2 * size - 2).bit_length()
    # A symbolic size has no "next power of two" in torch. This is a declared shape only; the nodes compute the size.
    return None if size is None else 4 * size


def _write_waves(writer: Writer, n: Value, size: object, dtype: torch.dtype) -> tuple[Value, Value]:
    """c_k and its conjugate, (n, 2). k^2 modulo 2 n keeps the angles small; they are float64."""
    ones = writer.node("Expand", writer.ints([1]), n, shape=(size,))
    steps = writer.node("Reshape", writer.node("NonZero", ones, shape=(1, size)), writer.ints([-1]), shape=(size,))
    double = writer.node("Add", n, n, shape=(1,))
    turns = writer.node("Mod", writer.node("Mul", steps, steps, shape=(size,)), double, shape=(size,))
    share = writer.node("Div", *(writer.cast(part, torch.float64, (size,)) for part in (turns, n)), shape=(size,))
    angle = writer.node("Mul", share, writer.scalar(math.pi, torch.float64), shape=(size,))
    cos, sin = (writer.cast(writer.node(name, angle, shape=(size,)), dtype, (size,)) for name in ("Cos", "Sin"))
    minus = writer.node("Neg", sin, shape=(size,))
    last = writer.ints([1])
    cos, sin, minus = (writer.node("Unsqueeze", part, last, shape=(size, 1)) for part in (cos, sin, minus))
    return tuple(writer.node("Concat", cos, part, axis=1, shape=(size, 2)) for part in (minus, sin))


def _write_power(writer: Writer, n: Value) -> Value:
    """(1,): the smallest power of two of at least 2 n - 1."""
    powers = writer.ints([2**k for k in range(40)])
    least = writer.node("Sub", writer.node("Add", n, n, shape=(1,)), writer.ints([1]), shape=(1,))
    # Sub, Max and Sign count the powers below `least`: a comparison would need a node with a bool output.
    missing = writer.node("Sub", least, powers, shape=(40,))
    short = writer.node("Sign", writer.node("Max", missing, writer.ints([0]), shape=(40,)), shape=(40,))
    place = writer.node("ReduceSum", short, writer.ints([0]), keepdims=1, shape=(1,))
    return writer.node("Gather", powers, place, shape=(1,))


def _write_kernel(writer: Writer, back: Value, n: Value, points: Value, shape: Any) -> Value:
    """conj(c) at 0 ... n - 1, zeros, and conj(c) at n - 1 ... 1: negative indices of the convolution."""
    size = writer.shape(back)[0]
    less, more = (None, None) if size is None else (size - 1, shape[1] - size + 1)
    # Backwards: from the last entry to before the first, wherever that is.
    steps = [writer.ints([number]) for number in (-1, -(2**62), 0, -1)]
    mirrored = writer.node("Slice", back, *steps, shape=(size, 2))
    rest = writer.node("Sub", n, writer.ints([1]), shape=(1,))
    mirrored = writer.node("Slice", mirrored, writer.ints([0]), rest, writer.ints([0]), shape=(less, 2))
    missing = writer.node("Sub", writer.node("Sub", points, n, shape=(1,)), rest, shape=(1,))
    pads = writer.node("Concat", writer.ints([0, 0]), missing, writer.ints([0]), axis=0, shape=(4,))
    filled = writer.node("Pad", back, pads, shape=(more, 2))
    whole = writer.node("Concat", filled, mirrored, axis=0, shape=shape[1:])
    return writer.node("Unsqueeze", whole, writer.ints([0]), shape=shape)


def _write_product(writer: Writer, x: Value, y: Value, shape: Any) -> Value:
    """The complex product of (rows, n, 2) with (n, 2) or (1, n, 2)."""
    part = (*shape[:-1], 1)
    cut = lambda value, at: writer.node("Gather", value, writer.ints([at]), axis=-1, shape=part)  # noqa: E731
    times = lambda one, two: writer.node("Mul", one, two, shape=part)  # noqa: E731
    a, b, c, d = cut(x, 0), cut(x, 1), cut(y, 0), cut(y, 1)
    real = writer.node("Sub", times(a, c), times(b, d), shape=part)
    imag = writer.node("Add", times(a, d), times(b, c), shape=part)
    return writer.node("Concat", real, imag, axis=-1, shape=shape)


_DFT = Recipe(_eager, _write_dft)
_CHIRP = Recipe(_eager, _write_chirp)
