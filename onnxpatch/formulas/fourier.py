"""Discrete Fourier transforms of long axes in O(n log n) or O(n sqrt n), with small constants.

- length n1 * n2: two small matrix products, n1 x n1 and n2 x n2, with a rotation between them;
- a long power of two: ONNX's DFT, whose error in onnxruntime is 1e-6 there (for other lengths it is 1e-5 at 60, 1e-3
  at 10,000 and 1e-2 at 100,000);
- any other length: a convolution with a chirp;
- a length that only the graph knows: an If, one product with a matrix that the graph computes or the chirp.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from onnxpatch._torch.function_modes import unseen
from onnxpatch.formulas import nodes
from onnxpatch.formulas.fourier_nodes import Length, WaveNodes, write_chirp
from onnxpatch.formulas.nodes import Recipe, Value, Writer
from onnxpatch.formulas.symbolic import example_of

# Up to here one matrix product is fastest; beyond, each factor's matrix may have this size.
SMALL = 256
# The longest product with a matrix that the graph computes: an entry takes 24 bytes with its index.
LONGEST_PRODUCT = 1024
# One product is faster while n * n < FREE + PER_ROW * rows * n; measured with onnxruntime on the CPU, one thread.
FREE, PER_ROW = 8000, 6

Parts = tuple[Tensor, Tensor]
# All n terms, the first n // 2 + 1 of them, or the real parts of all.
Wanted = Literal["all", "half", "real"]


def is_long(length: object, dtype: torch.dtype) -> bool:
    """Whether `transform` is better than one product with an n x n matrix. length: an int, or a size of the graph."""
    if dtype != torch.float32 or nodes.target_opset() < 17:  # for which the nodes are not written
        return False
    return not isinstance(length, int) or length > SMALL


def transform(real: Tensor, imag: Tensor | None, length: Any, wanted: Wanted = "all") -> Parts:
    """The forward transform, unscaled, along the last axis. float32.

    length: n, an int or a size of the graph. All n points are given, or of a size of the graph the first ones: zeros
    follow. The imaginary part of wanted="real" has no meaning.
    """
    if isinstance(length, int) and length > 1:
        factors = _factors(length)
        # A prime has only the factors 1 and n: its matrix would be n x n.
        if factors[0] > 1 and factors[1] <= SMALL:
            a, b = _two_products(real, imag, *factors)
            terms = _count(length, wanted)
            return (a.narrow(-1, 0, terms), b.narrow(-1, 0, terms)) if wanted == "half" else (a, b)
    write = _write_either if not isinstance(length, int) else _write_dft if length & (length - 1) == 0 else _write_chirp
    parts = 1 if imag is None else 2
    both = real.unsqueeze(-2) if imag is None else torch.stack((real, imag), -2)
    found = nodes.run(_recipe(write, wanted, parts), both.reshape([-1, parts, both.shape[-1]]), length)
    found = found.reshape([*real.shape[:-1], _outputs(wanted), _count(length, wanted)])
    return found[..., 0, :], found[..., -1, :]


def _outputs(wanted: Wanted) -> int:
    return 1 if wanted == "real" else 2


def _count(length: Any, wanted: Wanted) -> Any:
    return length // 2 + 1 if wanted == "half" else length


def _factors(n: int) -> tuple[int, int]:
    """n as a product of two factors, as close as possible, the smaller first."""
    small = next(k for k in range(math.isqrt(n), 0, -1) if n % k == 0)
    return small, n // small


# NumPy arrays, not tensors: a tensor that is made while an exporter runs belongs to that export.
@functools.lru_cache(maxsize=32)
def waves(rows: int, columns: int, points: int, sign: int = -1) -> tuple[np.ndarray, np.ndarray]:
    """Real and imaginary part of exp(sign 2 pi i j k / points), for j < rows and k < columns. float32."""
    # The product is reduced to one turn before it is scaled: the sine of a large angle loses digits.
    angles = 2 * np.pi * (np.outer(np.arange(rows), np.arange(columns)) % points) / points
    return np.cos(angles).astype("float32"), sign * np.sin(angles).astype("float32")


def _two_products(real: Tensor, imag: Tensor | None, n1: int, n2: int) -> Parts:
    """Entry j is n2 j1 + j2, term k is k1 + n1 k2: sum over j1, turn by j2 k1 / n, then sum over j2."""
    first, turn, second = (
        tuple(torch.from_numpy(part).to(real) for part in waves(*sizes))
        for sizes in ((n1, n1, n1), (n1, n2, n1 * n2), (n2, n2, n2))
    )
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


@functools.cache
def _recipe(write: Callable[..., Value], wanted: Wanted, parts: int) -> Recipe:
    """Of (rows, parts, points) to (rows * outputs * terms,).

    parts: 2 with an imaginary part, else 1; a traced size does not say which. The result has one dimension, since
    torch.cond refuses others whose strides it cannot prove equal.
    """
    given: dict[str, Any] = {"wanted": wanted, "parts": parts}
    return Recipe(functools.partial(_eager, **given), functools.partial(write, **given))


def _eager(x: Tensor, length: object, wanted: Wanted, parts: int) -> Tensor:
    # The patches of torch.fft and of complex numbers must not act on the eager form: they call this function.
    with unseen():
        y = torch.complex(x[:, 0], x[:, 1] if parts == 2 else torch.zeros_like(x[:, 0]))
        y = torch.fft.fft(y, n=length).narrow(1, 0, _count(length, wanted))
        return torch.stack((y.real, y.imag)[: _outputs(wanted)], 1).reshape([-1])


def _write_dft(writer: Writer, x: Value, length: int, wanted: Wanted, parts: int) -> Value:
    """ONNX's DFT, along the axis before the last: the default of every opset, which name it in different ways."""
    rows, outputs, terms = writer.shape(x)[0], _outputs(wanted), _count(length, wanted)
    x = writer.node("Transpose", x, perm=[0, 2, 1], shape=(rows, length, parts))
    x = writer.node("DFT", x, shape=(rows, length, 2))
    x = writer.node("Transpose", x, perm=[0, 2, 1], shape=(rows, 2, length))
    limits = [writer.ints(numbers) for numbers in ([0, 0], [outputs, terms], [1, 2])]
    return _flat(writer, writer.node("Slice", x, *limits, shape=(rows, outputs, terms)))


def _write_chirp(writer: Writer, x: Value, length: int, wanted: Wanted, parts: int) -> Value:
    return _long(writer, x, writer.ints([length]), length, wanted, parts)


def _write_either(writer: Writer, x: Value, length: object, wanted: Wanted, parts: int) -> Value:
    known, n, size = WaveNodes(writer), writer.length(length), writer.number(length)
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
    whole = None if rows is None or size is None else rows * _outputs(wanted) * _count(size, wanted)
    return writer.either(is_short, (short, long), x, n, size, shape=(whole,))


def _long(writer: Writer, x: Value, n: Value, size: object, wanted: Wanted, parts: int) -> Value:
    found = write_chirp(writer, x, parts, (n, size), _terms(WaveNodes(writer), n, size, wanted))
    rows, _, count = writer.shape(found)
    if wanted == "real":
        found = writer.node("Gather", found, writer.ints([0]), axis=1, shape=(rows, 1, count))
    return _flat(writer, found)


def _short(writer: Writer, x: Value, n: Value, size: object, wanted: Wanted, parts: int) -> Value:
    """(rows, parts * given) times (parts * given, outputs * terms)."""
    known = WaveNodes(writer)
    rows, _, given = writer.shape(x)
    points, (terms, count) = known.axis(x, 2), _terms(known, n, size, wanted)
    turns = known.table(points, terms, (given, count))
    cos, sin = known.gathered(known.circle(n, size), turns, n, (given, count))
    # (a + b i) (cos + i sin): the columns of the real part, then those of the imaginary part
    lines = [[cos, sin], [known.negative(sin), cos]][:parts]
    outputs = _outputs(wanted)
    high, wide = (None, None) if size is None else (parts * given, outputs * count)
    matrix = known.joined(0, (high, wide), *(known.joined(1, (given, wide), *line[:outputs]) for line in lines))
    points = known.add("Mul", points, known.ints(parts), shape=(1,))
    found = known.reshaped(x, [known.ints(-1), points], (rows, high))
    return _flat(writer, known.add("MatMul", found, matrix, shape=(rows, wide)))


def _terms(known: WaveNodes, n: Value, size: object, wanted: Wanted) -> Length:
    if wanted != "half":
        return n, size
    terms = known.add("Add", known.add("Div", n, known.ints(2), shape=(1,)), known.ints(1), shape=(1,))
    return terms, None if size is None else _count(size, wanted)


def _flat(writer: Writer, x: Value) -> Value:
    sizes = writer.shape(x)
    whole = None if None in sizes else math.prod(sizes)
    return writer.node("Reshape", x, writer.ints([-1]), shape=(whole,))
