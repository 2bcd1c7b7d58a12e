"""`Pair`: a complex tensor in two real ones, which takes part in torch calls like a tensor, and its arithmetic.

    torch.view_as_complex(x) * rotation        both factors are Pairs while an exporter runs
    Pair.__mul__ -> torch.mul of two Pairs     answered by that patch, out of the functions below

ONNX has no complex numbers. A Pair passes each torch call to a function registered by `answer_with`: so this file does
not import the tables, which import it. Each function takes Pairs, tensors and Python numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from onnxpatch._torch import exporting
from onnxpatch._torch.function_modes import unseen
from onnxpatch.errors import RefusedError
from onnxpatch.formulas import scans
from onnxpatch.formulas.calls import listed

# The registered functions; the patch of complex numbers registers them when it is imported.
_answers: dict[str, Any] = {}


def answer_with(call: Callable[..., object], properties: Mapping[str, Callable[[Any], Any]]) -> None:
    """Register `call(function, *args, **kwargs)` for torch calls on Pairs, and functions for their properties."""
    _answers.update(call=call, properties=properties)


class Pair:
    """A complex tensor as two real ones of one shape, `real` and `imag`. Torch functions take it like a tensor."""

    def __init__(self, real: torch.Tensor, imag: torch.Tensor) -> None:
        self.real = real
        self.imag = imag

    @staticmethod
    def of(value: object) -> Pair:
        """A Pair of a tensor or a number; a Pair is returned as it is. A stored complex tensor gives two constants."""
        if isinstance(value, Pair):
            return value
        if isinstance(value, complex):
            return Pair(torch.tensor(value.real), torch.tensor(value.imag))
        if not isinstance(value, torch.Tensor):
            # 0-d parts, which broadcast.
            return Pair(torch.as_tensor(value), torch.tensor(0.0))
        if not value.is_complex():
            return Pair(value, torch.zeros_like(value))
        return _stored(value)

    def onnxpatch_output(self) -> torch.Tensor:
        """The output for the caller of the model: complex in eager, else real, with both parts on a last axis of 2.

        That is torch.view_as_real's layout: no ONNX operator makes a complex tensor.
        """
        return torch.complex(self.real, self.imag) if exporting() is None else view_as_real(self)

    @classmethod
    def __torch_function__(cls, function: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        return _answers["call"](function, *args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        # Not dunder names: libraries ask with them what an object can do (`__array__`, `__deepcopy__`), and a Pair
        # cannot.
        if name.startswith("__") or not hasattr(torch.Tensor, name):
            raise AttributeError(f"a complex tensor has no attribute {name!r} while it is exported")
        function = getattr(torch.Tensor, name)
        if name in _answers["properties"]:
            return _answers["properties"][name](self)
        return lambda *args, **kwargs: _answers["call"](function, self, *args, **kwargs)

    def __getitem__(self, index: Any) -> Pair:
        return Pair(self.real[index], self.imag[index])

    def __setitem__(self, index: Any, value: object) -> None:
        value = Pair.of(value)
        self.real[index], self.imag[index] = value.real, value.imag

    def __len__(self) -> int:
        return len(self.real)

    def __iter__(self) -> Any:
        return map(Pair, self.real, self.imag)

    def __neg__(self) -> Pair:
        return Pair(-self.real, -self.imag)


def _operator(function: Callable[..., Any], reflected: bool = False) -> Callable[..., Any]:
    """The method that asks for `function` of its operands; reflected: the Pair is the second one."""
    return lambda self, *other: _answers["call"](function, *((*other, self) if reflected else (self, *other)))


_OPERATORS: dict[str, Any] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "truediv": torch.div, "matmul": torch.matmul,
    "pow": torch.pow, "abs": torch.abs,
}  # fmt: skip
for _name, _function in _OPERATORS.items():
    setattr(Pair, f"__{_name}__", _operator(_function))
    if _name not in ("pow", "abs"):
        # Of a sum or a product the Pair may be the first operand in any case.
        setattr(Pair, f"__r{_name}__", _operator(_function, reflected=_name not in ("add", "mul")))


def _stored(value: torch.Tensor) -> Pair:
    with unseen():  # these calls must not go through the patches' mode: they would come back here
        if type(value) in (torch.Tensor, torch.nn.Parameter):
            # Through NumPy, so that the TorchScript tracer records two constants and no complex operator.
            numbers = value.detach().cpu().numpy()
            parts = (np.asarray(part, order="C") for part in (numbers.real, numbers.imag))
            return Pair(*(torch.from_numpy(part).to(value.device) for part in parts))
        # A fake tensor, under torch.export, has no numbers to read. aten.view_as_real has an ONNX form there.
        both = torch.ops.aten.view_as_real.default(value)
    return Pair(both[..., 0], both[..., 1])


def view_as_complex(a: torch.Tensor) -> Pair:
    return Pair(a[..., 0], a[..., 1])


def view_as_real(a: object) -> torch.Tensor:
    a = Pair.of(a)
    return torch.stack(torch.broadcast_tensors(a.real, a.imag), dim=-1)


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
    parts = listed(operands)
    if len(parts) == 1:
        only = Pair.of(parts[0])
        return Pair(torch.einsum(equation, only.real), torch.einsum(equation, only.imag))
    if len(parts) != 2:
        raise RefusedError(f"einsum {equation!r} of {len(parts)} complex operands: write it as products of two")
    return _bilinear(lambda x, y: torch.einsum(equation, x, y), *parts)


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
    part = dtype.to_real()
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


def norm(a: object, *args: object, **kwargs: object) -> torch.Tensor:
    return torch.linalg.norm(magnitude(a), *args, **kwargs)


def cumprod(a: object, dim: int, **kwargs: object) -> Pair:
    a = Pair.of(a)
    return Pair(*scans.complex_cumprod(a.real, a.imag, dim))


def log(a: object) -> Pair:
    return Pair(torch.log(magnitude(a)), angle(a))


def prod(a: object, *args: object, **kwargs: object) -> Pair:
    raise RefusedError("a product over an axis of a complex tensor has no ONNX form here: multiply its slices")


def complex_dtype(dtype: torch.dtype) -> torch.dtype:
    # float32 and whole numbers make complex64, as in torch.
    return {torch.float16: torch.complex32, torch.float64: torch.complex128}.get(dtype, torch.complex64)
