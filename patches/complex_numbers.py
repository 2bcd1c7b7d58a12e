"""Complex tensors as pairs of real ones: rotary position encodings, spectra, phases.

ONNX has a complex dtype and no operators for it. While a patched model runs, every torch call that makes or takes a
complex tensor is done on `Pair`s: the real and the imaginary part, each an ordinary tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from onnxpatch import Proof, patch
from onnxpatch._torch import unseen
from onnxpatch.errors import RefusedError


class Pair:
    """A complex tensor in two real ones, `real` and `imag`, of one shape; takes part in torch calls like a tensor."""

    def __init__(self, real: torch.Tensor, imag: torch.Tensor) -> None:
        self.real = real
        self.imag = imag

    @staticmethod
    def of(value: Any) -> Pair:
        """`value` (a Pair, a tensor, a Python number) as a Pair. A stored complex tensor becomes two constants."""
        if isinstance(value, Pair):
            return value
        if isinstance(value, complex):
            return Pair(torch.tensor(value.real), torch.tensor(value.imag))
        if not isinstance(value, torch.Tensor):
            return Pair(torch.as_tensor(value), torch.tensor(0.0))
        if not value.is_complex():
            return Pair(value, torch.zeros_like(value))
        return _stored(value)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return complex_call(function, *args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(torch.Tensor, name):
            raise AttributeError(f"a complex tensor has no attribute {name!r}")
        function = getattr(torch.Tensor, name)
        if name in PROPERTIES:
            return PROPERTIES[name](self)
        return lambda *args, **kwargs: complex_call(function, self, *args, **kwargs)

    def __getitem__(self, index: Any) -> Pair:
        return Pair(self.real[index], self.imag[index])

    def __len__(self) -> int:
        return len(self.real)

    def __iter__(self) -> Any:
        return map(Pair, self.real, self.imag)

    def __add__(self, other: Any) -> Pair:
        return add(self, other)

    def __sub__(self, other: Any) -> Pair:
        return sub(self, other)

    def __rsub__(self, other: Any) -> Pair:
        return sub(other, self)

    def __mul__(self, other: Any) -> Pair:
        return mul(self, other)

    def __truediv__(self, other: Any) -> Pair:
        return div(self, other)

    def __rtruediv__(self, other: Any) -> Pair:
        return div(other, self)

    def __matmul__(self, other: Any) -> Pair:
        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> Pair:
        return matmul(other, self)

    def __pow__(self, exponent: Any) -> Pair:
        return power(self, exponent)

    def __neg__(self) -> Pair:
        return Pair(-self.real, -self.imag)

    def __abs__(self) -> torch.Tensor:
        return magnitude(self)

    __radd__, __rmul__ = __add__, __mul__


def _stored(value: torch.Tensor) -> Pair:
    with unseen():  # asked through the mode, these calls would come back here
        if type(value) in (torch.Tensor, torch.nn.Parameter):
            # By way of numpy, so that the tracer of the TorchScript exporter sees two constants, no complex operator.
            numbers = value.detach().cpu().numpy()
            parts = (np.ascontiguousarray(part) for part in (numbers.real, numbers.imag))
            return Pair(*(torch.from_numpy(part).to(value.device) for part in parts))
        both = torch.ops.aten.view_as_real.default(value)
    return Pair(both[..., 0], both[..., 1])


def _real(value: Any) -> bool:
    """Whether `value` has no imaginary part to carry along."""
    return not isinstance(value, Pair | complex) and not (isinstance(value, torch.Tensor) and value.is_complex())


# ---- arithmetic
def add(a: Any, b: Any, *, alpha: Any = 1) -> Pair:
    if _real(b):
        a = Pair.of(a)
        return Pair(a.real + b * alpha, a.imag + torch.zeros_like(a.real + b))
    a, b = Pair.of(a), Pair.of(b)
    return Pair(a.real + b.real * alpha, a.imag + b.imag * alpha)


def sub(a: Any, b: Any, *, alpha: Any = 1) -> Pair:
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
    product = mul(a, conj(b))
    return Pair(product.real / size, product.imag / size)


def matmul(a: Any, b: Any) -> Pair:
    return _bilinear(torch.matmul, a, b)


def einsum(equation: str, *operands: Any) -> Pair:
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
    real = function(a.real, b.real) - function(a.imag, b.imag)
    return Pair(real, function(a.real, b.imag) + function(a.imag, b.real))


def conj(a: Any) -> Any:
    return a if _real(a) else Pair(Pair.of(a).real, -Pair.of(a).imag)


def magnitude(a: Any) -> torch.Tensor:
    a = Pair.of(a)
    return torch.sqrt(a.real * a.real + a.imag * a.imag)


def angle(a: Any) -> torch.Tensor:
    a = Pair.of(a)
    return torch.atan2(a.imag, a.real)


def exp(a: Any) -> Pair:
    a = Pair.of(a)
    return polar(torch.exp(a.real), a.imag)


def polar(size: Any, phase: torch.Tensor) -> Pair:
    return Pair(size * torch.cos(phase), size * torch.sin(phase))


def power(a: Any, exponent: Any) -> Pair:
    if isinstance(exponent, int) and 1 <= exponent <= 4:
        result = Pair.of(a)
        for _ in range(exponent - 1):
            result = mul(result, a)
        return result
    if isinstance(exponent, int | float):
        return polar(magnitude(a) ** exponent, angle(a) * exponent)
    raise RefusedError("a power of a complex tensor with an exponent that is a tensor")


def view_as_complex(a: torch.Tensor) -> Pair:
    return Pair(a[..., 0], a[..., 1])


def view_as_real(a: Any) -> torch.Tensor:
    a = Pair.of(a)
    return torch.stack(torch.broadcast_tensors(a.real, a.imag), dim=-1)


def to(a: Any, *args: Any, **kwargs: Any) -> Any:
    """A real tensor made complex, a pair moved, or, for a real dtype, its real part (as torch does, with a warning)."""
    dtype = next((v for v in (*args, *kwargs.values()) if isinstance(v, torch.dtype)), None)
    if dtype is None:
        return Pair(Pair.of(a).real.to(*args, **kwargs), Pair.of(a).imag.to(*args, **kwargs))
    if not dtype.is_complex:
        return Pair.of(a).real.to(dtype)
    part = _part_dtype(dtype)
    return Pair(Pair.of(a).real.to(part), Pair.of(a).imag.to(part))


def type_as(a: Any, other: Any) -> Any:
    if _real(other):
        return Pair.of(a).real.type_as(other)
    return Pair(Pair.of(a).real.type_as(Pair.of(other).real), Pair.of(a).imag.type_as(Pair.of(other).real))


def where(condition: torch.Tensor, a: Any, b: Any) -> Pair:
    a, b = Pair.of(a), Pair.of(b)
    return Pair(torch.where(condition, a.real, b.real), torch.where(condition, a.imag, b.imag))


def equal(a: Any, b: Any) -> torch.Tensor:
    a, b = Pair.of(a), Pair.of(b)
    return (a.real == b.real) & (a.imag == b.imag)


def ones_like(a: Any, **kwargs: Any) -> Pair:
    real = Pair.of(a).real
    return Pair(torch.ones_like(real), torch.zeros_like(real))


def norm(a: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    return torch.linalg.norm(magnitude(a), *args, **kwargs)


def prod(a: Any, *args: Any, **kwargs: Any) -> Pair:
    raise RefusedError("a product over an axis of a complex tensor has no ONNX form here")


def _part_dtype(dtype: torch.dtype) -> torch.dtype:
    return {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}[dtype]


def _complex_dtype(dtype: torch.dtype) -> torch.dtype:
    return {torch.float16: torch.complex32, torch.float64: torch.complex128}.get(dtype, torch.complex64)


def _same(a: Any, *args: Any, **kwargs: Any) -> Any:
    return a


PROPERTIES: dict[str, Any] = {
    **{name: (lambda a, name=name: getattr(a.real, name)) for name in ("shape", "device", "ndim", "layout", "is_cuda")},
    "dtype": lambda a: _complex_dtype(a.real.dtype),
    "requires_grad": lambda a: False,
    "data": lambda a: a,
    "T": lambda a: Pair(a.real.transpose(0, 1), a.imag.transpose(0, 1)),
    "mT": lambda a: Pair(a.real.transpose(-1, -2), a.imag.transpose(-1, -2)),
    "mH": lambda a: Pair(a.real.transpose(-1, -2), -a.imag.transpose(-1, -2)),
    "H": lambda a: Pair(a.real.transpose(-1, -2), -a.imag.transpose(-1, -2)),
}

# What acts on each part by itself: moves of elements and sums.
PARTWISE = frozenset((
    "view", "reshape", "transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis", "unsqueeze",
    "squeeze", "flatten", "unflatten", "expand", "broadcast_to", "contiguous", "clone", "detach", "chunk", "split",
    "tensor_split", "unbind", "narrow", "select", "roll", "flip", "repeat", "tile", "repeat_interleave",
    "index_select", "gather", "take_along_dim", "cat", "concat", "concatenate", "stack", "hstack", "vstack", "sum",
    "mean", "nansum", "cumsum", "diff", "tril", "triu", "diagonal", "neg", "negative", "positive", "zeros_like",
    "__getitem__", "t", "cpu", "cuda", "masked_select", "rot90", "trace", "atleast_1d", "atleast_2d", "unfold",
    "narrow_copy", "nan_to_num", "pad",
))  # fmt: skip
# Questions about shape, answered by the real part.
SHAPEWISE = frozenset((
    "size", "dim", "numel", "stride", "nelement", "__len__", "is_contiguous", "get_device", "storage_offset",
))  # fmt: skip

OPERATIONS: dict[str, Any] = {
    **dict.fromkeys(("add", "__add__", "__radd__"), add),
    **dict.fromkeys(("sub", "subtract", "__sub__"), sub),
    **dict.fromkeys(("rsub", "__rsub__"), lambda a, b: sub(b, a)),
    **dict.fromkeys(("mul", "multiply", "__mul__", "__rmul__"), mul),
    **dict.fromkeys(("div", "divide", "true_divide", "__div__", "__truediv__"), div),
    **dict.fromkeys(("__rdiv__", "__rtruediv__"), lambda a, b: div(b, a)),
    **dict.fromkeys(("matmul", "mm", "bmm", "__matmul__"), matmul),
    "__rmatmul__": lambda a, b: matmul(b, a),
    **dict.fromkeys(("pow", "__pow__"), power),
    "square": lambda a: mul(a, a),
    "reciprocal": lambda a: div(1.0, a),
    "einsum": einsum,
    **dict.fromkeys(("conj", "conj_physical"), conj),
    **dict.fromkeys(("abs", "absolute", "__abs__"), magnitude),
    "angle": angle,
    "exp": exp,
    "polar": polar,
    "complex": Pair,
    "view_as_complex": view_as_complex,
    "view_as_real": view_as_real,
    **dict.fromkeys(("resolve_conj", "resolve_neg"), _same),
    "to": to,
    "type": to,
    "cfloat": lambda a: to(a, torch.complex64),
    "cdouble": lambda a: to(a, torch.complex128),
    "type_as": type_as,
    "where": where,
    **dict.fromkeys(("eq", "__eq__"), equal),
    "ones_like": ones_like,
    "expand_as": lambda a, b: _partwise(torch.Tensor.expand_as, (Pair.of(a), Pair.of(b)), {}),
    "view_as": lambda a, b: _partwise(torch.Tensor.view_as, (Pair.of(a), Pair.of(b)), {}),
    **dict.fromkeys(("norm", "linalg_norm", "linalg_vector_norm"), norm),
    "is_complex": lambda a: True,
    "is_floating_point": lambda a: False,
    "broadcast_tensors": lambda *all: _broadcast(*all),
    "float": lambda a: Pair.of(a).real.float(),
    "prod": prod,
}
MAKERS = frozenset(("view_as_complex", "complex", "polar"))
"""Functions that make a complex tensor out of real ones."""


def _broadcast(*all: Any) -> list[Any]:
    shape = torch.broadcast_shapes(*(Pair.of(each).real.shape for each in all))
    return [Pair(Pair.of(a).real.expand(shape), Pair.of(a).imag.expand(shape)) for a in all]


def complex_call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """`function` on pairs, by the name that it has in torch."""
    name = _name(function)
    if name in OPERATIONS:
        return OPERATIONS[name](*args, **kwargs)
    if name in PROPERTIES:
        return PROPERTIES[name](Pair.of(args[0]))
    if name in ("real", "imag"):
        return getattr(Pair.of(args[0]), name)
    if name in SHAPEWISE:
        return function(Pair.of(args[0]).real, *args[1:], **kwargs)
    if name in PARTWISE:
        return _partwise(function, args, kwargs)
    raise RefusedError(
        f"torch.{name} of a complex tensor has no ONNX form here; write it with real and imaginary parts"
    )


def _name(function: Any) -> str:
    name = getattr(function, "__name__", "")
    # A property (Tensor.shape, Tensor.real) comes as the bound __get__ of its descriptor.
    owner = getattr(function, "__self__", None)
    return getattr(owner, "__name__", name) if name == "__get__" else name


def _partwise(function: Any, args: Any, kwargs: Any) -> Any:
    real = function(*_parts(args, "real"), **{k: _parts(v, "real") for k, v in kwargs.items()})
    imag = function(*_parts(args, "imag"), **{k: _parts(v, "imag") for k, v in kwargs.items()})
    if isinstance(real, list | tuple):
        return type(real)(map(Pair, real, imag)) if type(real) in (list, tuple) else tuple(map(Pair, real, imag))
    return Pair(real, imag)


def _parts(value: Any, part: str) -> Any:
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(_parts(item, part) for item in value)
    if isinstance(value, Pair) or (isinstance(value, torch.Tensor) and value.is_complex()):
        return getattr(Pair.of(value), part)
    return value


def touches_complex(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call makes a complex tensor or takes one."""
    name = _name(function)
    if name in MAKERS:
        return True
    if name in PROPERTIES or name in SHAPEWISE:
        return any(isinstance(value, Pair) for value in args)
    return any(map(_holds_complex, args)) or any(map(_holds_complex, kwargs.values()))


def _holds_complex(value: Any) -> bool:
    if isinstance(value, torch.Tensor | torch.dtype):
        return value.is_complex() if isinstance(value, torch.Tensor) else value.is_complex
    if isinstance(value, list | tuple):
        return any(map(_holds_complex, value))
    return isinstance(value, Pair | complex)


class _Rotary(torch.nn.Module):
    """Rotary encoding as Llama and SAM 2 write it, with a stored table and one made of positions."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(32.0), 1.0 / 100.0 ** (torch.arange(0, 8, 2) / 8))
        self.register_buffer("table", torch.polar(torch.ones_like(angles), angles))
        self.speed = torch.nn.Parameter(torch.rand(4))

    def forward(self, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pairs = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))
        stored = torch.view_as_real(pairs * self.table[: q.shape[1]][None, :, None]).flatten(3)
        phase = torch.arange(q.shape[1])[:, None] * self.speed
        made = torch.polar(torch.ones_like(phase), phase).unsqueeze(1)
        return stored.type_as(q), (pairs * made.conj() * torch.exp(1j * phase)[:, None]).abs()


@patch(
    "torch.*",
    name="complex-numbers",
    why="Exporting the operator 'aten::view_as_complex' to ONNX is not supported; ComplexFloat has no ONNX form",
    link="https://github.com/facebookresearch/sam2/issues/186",
    calls=touches_complex,
    proof=Proof(
        build=_Rotary,
        inputs=lambda: [(torch.randn(2, 6, 3, 8),), (torch.randn(1, 11, 3, 8),), (torch.randn(3, 4, 3, 8),)],
        dynamic_shapes=({0: "batch", 1: "length"},),
        fails=("dynamo", "trace"),
    ),
)
def complex_as_pairs(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Any torch call on complex tensors, done on pairs of real ones."""
    return complex_call(original, *args, **kwargs)
