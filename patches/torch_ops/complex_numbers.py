"""Complex tensors as pairs of real ones: rotary position encodings, spectra, phases.

ONNX has a complex dtype and no operators for it. While a patched model is exported, every torch call that returns or
takes a complex tensor is computed with `Pair`s: two real tensors, the real and the imaginary part. The tables are keyed
by a function's name in torch.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from onnxpatch import RefusedError, op, running_model, untraced
from onnxpatch.formulas import complex_pairs
from onnxpatch.formulas.complex_pairs import Pair, complex_dtype
from onnxpatch.formulas.elementary import floats
from onnxpatch.formulas.symbolic import function_name, operator_of, traced_from
from onnxpatch.patching.proof import numbers


def _same(a: object, *args: object, **kwargs: object) -> object:
    return a


PROPERTIES: dict[str, Any] = {
    **{name: (lambda a, name=name: getattr(a.real, name)) for name in ("shape", "device", "ndim", "layout", "is_cuda")},
    "dtype": lambda a: complex_dtype(a.real.dtype),
    "requires_grad": lambda a: False,
    "data": lambda a: a,
    "T": lambda a: Pair(a.real.transpose(0, 1), a.imag.transpose(0, 1)),
    "mT": lambda a: Pair(a.real.transpose(-1, -2), a.imag.transpose(-1, -2)),
    "mH": lambda a: Pair(a.real.transpose(-1, -2), -a.imag.transpose(-1, -2)),
    "H": lambda a: Pair(a.real.transpose(-1, -2), -a.imag.transpose(-1, -2)),
}

# Functions that act on the real and the imaginary part separately: moves of elements, sums.
PARTWISE = frozenset((
    "view", "reshape", "transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis", "unsqueeze",
    "squeeze", "flatten", "unflatten", "expand", "broadcast_to", "contiguous", "clone", "detach", "chunk", "split",
    "tensor_split", "unbind", "narrow", "select", "roll", "flip", "repeat", "tile", "repeat_interleave",
    "index_select", "gather", "take_along_dim", "cat", "concat", "concatenate", "stack", "hstack", "vstack", "sum",
    "mean", "nansum", "cumsum", "diff", "tril", "triu", "diagonal", "neg", "negative", "positive",
    "__getitem__", "t", "cpu", "cuda", "masked_select", "rot90", "trace", "atleast_1d", "atleast_2d", "unfold",
    "narrow_copy", "nan_to_num", "pad", "fft_fftshift", "fft_ifftshift",
))  # fmt: skip
# Functions of the shape only: those of the real part.
SHAPEWISE = frozenset((
    "size", "dim", "numel", "stride", "nelement", "__len__", "is_contiguous", "get_device", "storage_offset",
))  # fmt: skip
FILLED = frozenset(
    made.format(fill) for fill in ("zeros", "ones", "empty", "full") for made in ("{}", "new_{}", "{}_like")
)

_BY_NAME = (
    "angle", "einsum", "exp", "log", "cumprod", "polar", "view_as_complex", "view_as_real", "to", "type_as", "where",
    "prod",
)  # fmt: skip
OPERATIONS: dict[str, Any] = {
    **{name: getattr(complex_pairs, name) for name in _BY_NAME},
    **dict.fromkeys(("add", "__add__", "__radd__"), complex_pairs.add),
    **dict.fromkeys(("sub", "subtract", "__sub__"), complex_pairs.sub),
    **dict.fromkeys(("rsub", "__rsub__"), lambda a, b: complex_pairs.sub(b, a)),
    **dict.fromkeys(("mul", "multiply", "__mul__", "__rmul__"), complex_pairs.mul),
    **dict.fromkeys(("div", "divide", "true_divide", "__div__", "__truediv__"), complex_pairs.div),
    **dict.fromkeys(("__rdiv__", "__rtruediv__"), lambda a, b: complex_pairs.div(b, a)),
    **dict.fromkeys(("matmul", "mm", "bmm", "__matmul__"), complex_pairs.matmul),
    "__rmatmul__": lambda a, b: complex_pairs.matmul(b, a),
    **dict.fromkeys(("pow", "__pow__"), complex_pairs.power),
    "square": lambda a: complex_pairs.mul(a, a),
    "reciprocal": lambda a: complex_pairs.div(1.0, a),
    **dict.fromkeys(("conj", "conj_physical"), complex_pairs.conj),
    **dict.fromkeys(("abs", "absolute", "__abs__"), complex_pairs.magnitude),
    "complex": Pair,
    **dict.fromkeys(("resolve_conj", "resolve_neg"), _same),
    "type": complex_pairs.to,
    "cfloat": lambda a, memory_format=None: complex_pairs.to(a, torch.complex64),
    "cdouble": lambda a, memory_format=None: complex_pairs.to(a, torch.complex128),
    **dict.fromkeys(("eq", "__eq__"), complex_pairs.equal),
    "expand_as": lambda a, b: _partwise(torch.Tensor.expand_as, (Pair.of(a), Pair.of(b)), {}),
    "view_as": lambda a, b: _partwise(torch.Tensor.view_as, (Pair.of(a), Pair.of(b)), {}),
    **dict.fromkeys(("norm", "linalg_norm", "linalg_vector_norm"), complex_pairs.norm),
    "is_complex": lambda a: True,
    "is_floating_point": lambda a: False,
    "broadcast_tensors": lambda *all: _broadcast(*all),
    "float": lambda a: Pair.of(a).real.float(),
}
# Torch's names of what is computed with, in the order of its functions.
_OPERANDS = (
    "condition", "input", "self", "A", "x", "tensors", "abs", "real", "other", "exponent", "mat2", "angle", "imag",
)  # fmt: skip
MAKERS = frozenset(("view_as_complex", "complex", "polar", "cfloat", "cdouble"))
"""Functions that make a complex tensor out of real ones."""


def _broadcast(*all: object) -> list[object]:
    shape = torch.broadcast_shapes(*(Pair.of(each).real.shape for each in all))
    return [Pair(Pair.of(a).real.expand(shape), Pair.of(a).imag.expand(shape)) for a in all]


def complex_call(function: Any, *args: Any, **kwargs: Any) -> object:
    """The result of a torch function on Pairs. Raises RefusedError for one without an ONNX form."""
    name = function_name(function)
    operands = [key for key in _OPERANDS if key in kwargs]
    args, kwargs = (*args, *map(kwargs.get, operands)), {k: v for k, v in kwargs.items() if k not in operands}
    if name in OPERATIONS:
        return OPERATIONS[name](*args, **kwargs)
    if name.endswith("_") and name[:-1] in OPERATIONS and isinstance(args[0], Pair):  # mul_ writes what mul computes
        args[0][...] = OPERATIONS[name[:-1]](*args, **kwargs)
        return args[0]
    if name in PROPERTIES:
        return PROPERTIES[name](Pair.of(args[0]))
    if name in ("real", "imag"):
        return getattr(Pair.of(args[0]), name)
    if name in SHAPEWISE:
        return function(Pair.of(args[0]).real, *args[1:], **kwargs)
    if name in FILLED:
        return _filled(function, args, kwargs)
    if name in PARTWISE:
        return _partwise(function, args, kwargs)
    raise RefusedError(
        f"torch.{name} of a complex tensor has no ONNX form here; write it with real and imaginary parts"
    )


def _filled(function: Any, args: Any, kwargs: Any) -> object:
    """What is filled with one number."""
    dtype = kwargs.get("dtype")
    if dtype is not None and dtype.is_complex:
        kwargs = {**kwargs, "dtype": dtype.to_real()}
    real = function(*_parts(args, "real"), **{k: _parts(v, "real") for k, v in kwargs.items()})
    if dtype is not None and not dtype.is_complex:
        return real
    number = next((one for one in (*args, *kwargs.values()) if isinstance(one, complex)), 0j)
    return Pair(real, torch.full_like(real, number.imag))


def _partwise(function: Any, args: Any, kwargs: Any) -> object:
    # The call twice, once on all real parts and once on all imaginary ones.
    real = function(*_parts(args, "real"), **{k: _parts(v, "real") for k, v in kwargs.items()})
    imag = function(*_parts(args, "imag"), **{k: _parts(v, "imag") for k, v in kwargs.items()})
    if isinstance(real, list | tuple):
        return type(real)(map(Pair, real, imag)) if type(real) in (list, tuple) else tuple(map(Pair, real, imag))
    return Pair(real, imag)


def _parts(value: object, part: str) -> Any:
    # Not subclasses: a named tuple cannot be made from one generator.
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(_parts(item, part) for item in value)
    if isinstance(value, Pair | complex) or (isinstance(value, torch.Tensor) and value.is_complex()):
        return getattr(value if isinstance(value, complex) else Pair.of(value), part)
    return value


def touches_complex(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether a call returns a complex tensor or takes one."""
    name = function_name(function)
    if name in MAKERS:
        return True
    # torch answers these for its own complex tensors, without an operator in the graph.
    if name in PROPERTIES or name in SHAPEWISE:
        return any(isinstance(value, Pair) for value in args)
    return any(map(_holds_complex, args)) or any(map(_holds_complex, kwargs.values()))


def _holds_complex(value: object) -> bool:
    if isinstance(value, torch.Tensor | torch.dtype):
        return value.is_complex() if isinstance(value, torch.Tensor) else value.is_complex
    if isinstance(value, list | tuple):
        return any(map(_holds_complex, value))
    return isinstance(value, Pair | complex)


# Importing this module is what makes Pairs work; the patch of complex numbers imports it.
complex_pairs.answer_with(complex_call, PROPERTIES)


# ------------------------------------------------------------------ the patches
class _Rotary(torch.nn.Module):
    """Rotary encoding as in Llama and SAM 2, with a stored table and a computed one."""

    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(32.0), 1.0 / 100.0 ** (torch.arange(0, 8, 2) / 8))
        self.register_buffer("table", torch.polar(torch.ones_like(angles), angles))
        self.speed = torch.nn.Parameter(torch.rand(4))

    def forward(self, q: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pairs = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))
        stored = torch.view_as_real(pairs * self.table[: q.shape[1]][None, :, None]).flatten(3)
        phase = torch.arange(q.shape[1])[:, None] * self.speed
        made = torch.polar(torch.ones_like(phase), phase).unsqueeze(1)
        low = torch.zeros(q.shape[1], 1, 4, dtype=torch.complex64)
        low[..., 1:3] = made[..., :2]
        turned = pairs * made.conj() * torch.exp(1j * phase)[:, None]
        return stored.type_as(q), turned.abs(), torch.view_as_real(torch.einsum("bnhc,nkc->bnhc", pairs, low))


@op(
    "torch.*",
    name="complex-numbers",
    why="Exporting the operator 'aten::view_as_complex' to ONNX is not supported; ComplexFloat has no ONNX form",
    reason="complex",
    link="https://github.com/facebookresearch/sam2/issues/186",
    # Any function of torch may get a complex tensor, so all of them are targets and this picks the calls.
    calls=touches_complex,
    plain=False,
    tries=lambda b, n: torch.randn(b, n, 3, 8),
    sizes=((2, 6), (1, 11), (3, 4)),
    case=_Rotary,
)
def complex_as_pairs(original: object, *args: object, **kwargs: object) -> object:
    """Computes a torch call on complex tensors with pairs of real ones."""
    running = running_model()
    stored = [] if running is None or running.model is None else [*running.tensors.values()]
    for value in args:
        if not isinstance(value, Tensor) or not value.is_complex():
            continue
        made = operator_of(value)
        if made and not traced_from(value, stored):
            raise RefusedError(
                f"{made} has no ONNX form, since no ONNX operator computes its complex result: compute it outside"
            )
    return complex_call(original, *args, **kwargs)


@op("angle", why=untraced("aten::angle"), tries=numbers)
def angle_of_real(input: Tensor) -> Tensor:
    """0, or pi for a negative number."""
    if input.is_complex():
        return NotImplemented
    x = floats(input)
    most = torch.tensor(torch.finfo(x.dtype).max, dtype=x.dtype)
    # Any negative number is beyond pi, times this.
    return (x * -most * most).clamp(0.0, math.pi)


op("isreal", why=untraced("aten::isreal"), tries=numbers, to=lambda x: torch.ones_like(x, dtype=torch.bool))


@op("real", why=untraced("aten::real"), tries=numbers, case=lambda x: torch.real(x))
def real(input: Tensor) -> Tensor:
    """Itself."""
    return NotImplemented if input.is_complex() else input.clone()
