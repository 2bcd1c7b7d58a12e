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
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onnxpatch._torch.function_modes import unseen
from onnxpatch.formulas import nodes
from onnxpatch.formulas.fourier_nodes import Wanted, outputs_of, terms_of, write_chirp, write_dft, write_either
from onnxpatch.formulas.nodes import Recipe, Value

# Up to here one matrix product is fastest; beyond, each factor's matrix may have this size.
SMALL = 256

Parts = tuple[Tensor, Tensor]


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
            terms = terms_of(length, wanted)
            return (a.narrow(-1, 0, terms), b.narrow(-1, 0, terms)) if wanted == "half" else (a, b)
    write = write_either if not isinstance(length, int) else write_dft if length & (length - 1) == 0 else write_chirp
    parts = 1 if imag is None else 2
    both = real.unsqueeze(-2) if imag is None else torch.stack((real, imag), -2)
    found = nodes.run(_recipe(write, wanted, parts), both.reshape([-1, parts, both.shape[-1]]), length)
    found = found.reshape([*real.shape[:-1], outputs_of(wanted), terms_of(length, wanted)])
    return found[..., 0, :], found[..., -1, :]


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
    return functools.partial(_eager, **given), functools.partial(write, **given)


def _eager(x: Tensor, length: object, wanted: Wanted, parts: int) -> Tensor:
    # The patches of torch.fft and of complex numbers must not act on the eager form: they call this function.
    with unseen():
        y = torch.complex(x[:, 0], x[:, 1] if parts == 2 else torch.zeros_like(x[:, 0]))
        y = torch.fft.fft(y, n=length).narrow(1, 0, terms_of(length, wanted))
        return torch.stack((y.real, y.imag)[: outputs_of(wanted)], 1).reshape([-1])
