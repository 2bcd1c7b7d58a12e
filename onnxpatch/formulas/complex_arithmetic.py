"""Complex arithmetic on `Pair`s of real tensors. Each function takes Pairs, tensors and Python numbers."""

from __future__ import annotations

from typing import Any

import torch

from onnxpatch.errors import RefusedError
from onnxpatch.formulas import scans
from onnxpatch.formulas.complex_pairs import Pair


def _real(value: object) -> bool:
    """Whether `value` is real."""
    return not isinstance(value, Pair | complex) and not (isinstance(value, torch.Tensor) and value.is_complex())


def add(a: Any, b: Any, *, alpha: Any = 1) -> Pair:
    if _real(b):
        a = Pair.of(a)
        # The zeros broadcast the imaginary part to the shape of the sum.
        return Pair(a.real + b * alpha, a.imag + torch.zeros_like(a.real + b))
    a, b = Pair.of(a), Pair.of(b)
    return Pair(a.real + b.real * alpha, a.imag + b.imag * alpha)


def sub(a: object, b: object, *, alpha: object = 1) -> Pair:
    return add(a, -Pair.of(b), alpha=alpha)


def mul(a: Any, b: Any) -> Pair:
    if _real(a):
        a, b = b, a
    a = Pair.of(a)
    if _real(b):
        return Pair(a.real * b, a.imag * b)
    b = Pair.of(b)
    return Pair(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)


def div(a: Any, b: Any) -> Pair:
    if _real(b):
        a = Pair.of(a)
        return Pair(a.real / b, a.imag / b)
    b = Pair.of(b)
    size = b.real * b.real + b.imag * b.imag
    # a / b = a conj(b) / |b|^2.
    product = mul(a, conj(b))
    return Pair(product.real / size, product.imag / size)


def matmul(a: object, b: object) -> Pair:
    return _bilinear(torch.matmul, a, b)


def einsum(equation: str, *operands: object) -> Pair:
    listed = operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    if len(listed) == 1:
        only = Pair.of(listed[0])
        return Pair(torch.einsum(equation, only.real), torch.einsum(equation, only.imag))
    if len(listed) != 2:
        raise RefusedError(f"einsum {equation!r} of {len(listed)} complex operands: write it as products of two")
    return _bilinear(lambda x, y: torch.einsum(equation, x, y), *listed)


def _bilinear(function: Any, a: Any, b: Any) -> Pair:
    if _real(a):
        b = Pair.of(b)
        return Pair(function(a, b.real), function(a, b.imag))
    a = Pair.of(a)
    if _real(b):
        return Pair(function(a.real, b), function(a.imag, b))
    b = Pair.of(b)
    # (p + qi)(r + si), in products of real tensors alone.
    real = function(a.real, b.real) - function(a.imag, b.imag)
    return Pair(real, function(a.real, b.imag) + function(a.imag, b.real))


def conj(a: object) -> object:
    return a if _real(a) else Pair(Pair.of(a).real, -Pair.of(a).imag)


def magnitude(a: object) -> torch.Tensor:
    a = Pair.of(a)
    return torch.sqrt(a.real * a.real + a.imag * a.imag)


def angle(a: object) -> torch.Tensor:
    a = Pair.of(a)
    return torch.atan2(a.imag, a.real)


def exp(a: object) -> Pair:
    a = Pair.of(a)
    return polar(torch.exp(a.real), a.imag)


def polar(size: Any, phase: torch.Tensor) -> Pair:
    return Pair(size * torch.cos(phase), size * torch.sin(phase))


def power(a: object, exponent: object) -> Pair:
    # Small powers by multiplication: exact where the polar form rounds sine and cosine.
    if isinstance(exponent, int) and 1 <= exponent <= 4:
        result = Pair.of(a)
        for _ in range(exponent - 1):
            result = mul(result, a)
        return result
    if isinstance(exponent, int | float):
        return polar(magnitude(a) ** exponent, angle(a) * exponent)
    raise RefusedError("a power of a complex tensor takes a number as its exponent here: a tensor has no ONNX form")


def to(a: object, *args: Any, **kwargs: Any) -> Any:
    """`Tensor.to`: a real tensor made complex, a Pair moved, or, for a real dtype, the real part, as in torch."""
    dtype = next((v for v in (*args, *kwargs.values()) if isinstance(v, torch.dtype)), None)
    if dtype is None:
        return Pair(Pair.of(a).real.to(*args, **kwargs), Pair.of(a).imag.to(*args, **kwargs))
    if not dtype.is_complex:
        return Pair.of(a).real.to(dtype)
    part = _part_dtype(dtype)
    return Pair(Pair.of(a).real.to(part), Pair.of(a).imag.to(part))


def type_as(a: Any, other: Any) -> object:
    if _real(other):
        return Pair.of(a).real.type_as(other)
    return Pair(Pair.of(a).real.type_as(Pair.of(other).real), Pair.of(a).imag.type_as(Pair.of(other).real))


def where(condition: torch.Tensor, a: object, b: object) -> Pair:
    a, b = Pair.of(a), Pair.of(b)
    return Pair(torch.where(condition, a.real, b.real), torch.where(condition, a.imag, b.imag))


def equal(a: object, b: object) -> torch.Tensor:
    a, b = Pair.of(a), Pair.of(b)
    return (a.real == b.real) & (a.imag == b.imag)


def ones_like(a: object, **kwargs: object) -> Pair:
    real = Pair.of(a).real
    return Pair(torch.ones_like(real), torch.zeros_like(real))


def norm(a: object, *args: object, **kwargs: object) -> torch.Tensor:
    return torch.linalg.norm(magnitude(a), *args, **kwargs)


def cumprod(a: object, dim: int, **kwargs: object) -> Pair:
    a = Pair.of(a)
    return Pair(*scans.complex_cumprod(a.real, a.imag, dim))


def log(a: object) -> Pair:
    return Pair(torch.log(magnitude(a)), angle(a))


def prod(a: object, *args: object, **kwargs: object) -> Pair:
    raise RefusedError("a product over an axis of a complex tensor has no ONNX form here: multiply its slices")


def _part_dtype(dtype: torch.dtype) -> torch.dtype:
    return {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}[dtype]


def complex_dtype(dtype: torch.dtype) -> torch.dtype:
    # float32 and whole numbers make complex64, as in torch.
    return {torch.float16: torch.complex32, torch.float64: torch.complex128}.get(dtype, torch.complex64)
