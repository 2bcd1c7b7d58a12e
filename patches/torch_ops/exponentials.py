"""Exponentials, logarithms, hyperbolic and error functions that the exporters lack or compute inexactly."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import missing, op, untraced
from onnxpatch.formulas import elementary
from onnxpatch.formulas.elementary import erfc, erfc_scaled, expm1, floats, log1p, normal_quantile, softplus
from onnxpatch.patching.proof import LOST_DIGITS, at_magnitudes, fractions, numbers, positive, shares

_SIGMOID = "non-finite values differ: it is exported as log(sigmoid(x)); sigmoid is 0 below -18 in onnxruntime"


op(
    "log1p",
    why="relative error 0.05 at 1e-6: log1p is exported as log(1 + x), which has no digits of a small x",
    tries=fractions,
    case=at_magnitudes(lambda x: torch.log1p(x.abs())),
    reason=LOST_DIGITS,
    to=lambda x: log1p(floats(x)),
)
op(
    "expm1",
    why="aten::expm1 is not supported by trace; relative error 0.05 at 1e-6: dynamo has exp(x) - 1",
    tries=fractions,
    case=at_magnitudes(torch.expm1),
    reason=f"aten::expm1|{LOST_DIGITS}",
    to=lambda x: expm1(floats(x)),
)


@op("asinh", "arcsinh", why=untraced("aten::asinh"), tries=fractions, case=at_magnitudes(torch.asinh))
def asinh(input: Tensor) -> Tensor:
    """The number whose hyperbolic sine is x."""
    x = floats(input)
    # Of |x|: for a negative x the sum would cancel. Beyond 1e4 the root is |x|, and a square might be infinite.
    size = x.abs()
    near = size.clamp(max=1e4)
    square = near * near
    found = log1p(near + square / (1 + torch.sqrt(1 + square)))
    return torch.sign(x) * torch.where(size > near, torch.log(size) + math.log(2), found)


def _shrunk(n: int) -> Tensor:
    """Small numbers whose hyperbolic tangent is nearly one of float32: of others eager has too few digits."""
    x = torch.linspace(0.004, 0.02, 4000)
    exact = x.double().tanh()
    return x[(exact.float() - exact).abs().argsort()[: 8 * n]].reshape(n, 8)


@op(
    "tanhshrink",
    why="relative error 0.05 at 1e-3: x - tanh(x) has no digits of a small x",
    tries=_shrunk,
    reason=LOST_DIGITS,
)
def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x): of a small x the first terms of its series."""
    square = input * input
    series = input * square * (1 / 3 - square * (2 / 15 - square * (17 / 315)))
    return torch.where(input.abs() < 0.2, series, input - torch.tanh(input))


@op("logsigmoid", why=_SIGMOID, tries=fractions, case=at_magnitudes(torch.nn.functional.logsigmoid), reason=LOST_DIGITS)
def logsigmoid(input: Tensor) -> Tensor:
    """log(1 / (1 + exp(-x)))."""
    return -softplus(-input)


@op("sinh", why=untraced("aten::sinh"), tries=numbers)
def sinh(input: Tensor) -> Tensor:
    """(exp(x) - exp(-x)) / 2, as a product that keeps the digits of a small x."""
    x = floats(input)
    return torch.tanh(x * 0.5) * (elementary.cosh(x) + 1)


op("cosh", why=untraced("aten::cosh"), tries=numbers, to=lambda x: elementary.cosh(floats(x)))


@op("atanh", "arctanh", why=untraced("aten::atanh"), tries=shares, case=lambda x: (torch.atanh(x), x.neg().arctanh()))
def atanh(input: Tensor) -> Tensor:
    """The number whose hyperbolic tangent is x: half the logarithm of (1 + x) / (1 - x)."""
    x = floats(input)
    share = (1 + x) / (1 - x)
    # Near 1 the share is rounded to another number: its logarithm is off by what was added.
    near = share.clamp(0.5, 2.0)
    return 0.5 * (torch.log(share) + (((x + x) / (1 - x)).clamp(-0.5, 1.0) - (near - 1)) / near)


@op(
    "acosh",
    "arccosh",
    why=untraced("aten::acosh"),
    tries=positive,
    case=lambda x: (torch.acosh(x + 1), (x + 1).arccosh()),
)
def acosh(input: Tensor) -> Tensor:
    """The positive number whose hyperbolic cosine is x."""
    above = floats(input) - 1
    return log1p(above + torch.sqrt(above) * torch.sqrt(above + 2))


@op("erfc", why="aten::erfc is not supported by trace; relative error 0.002: from 3 on, dynamo's 1 - Erf lacks digits",
    reason="aten::erfc|relative error", tries=lambda b, n: numbers(b, n) * 3,
    case=lambda x: (torch.erfc(x), torch.special.erfc(x.abs() + 3)))  # fmt: skip
def complement(input: Tensor) -> Tensor:
    """1 - erf(x), of large x too."""
    return erfc(floats(input))


@op(
    "special.erfcx",
    why="aten::special_erfcx is not supported by trace; relative error 1: dynamo's is 0 where eager's is 0.09",
    reason="special_erfcx|relative error",
    tries=lambda b, n: numbers(b, n) * 3,
)
def erfcx(input: Tensor) -> Tensor:
    """exp(x**2) erfc(x)."""
    x = floats(input)
    found = erfc_scaled(x.abs())
    return torch.where(x < 0, 2 * torch.exp(x * x) - found, found)


@op("special.ndtr", why=untraced("aten::special_ndtr"), tries=lambda b, n: numbers(b, n) * 3)
def ndtr(input: Tensor) -> Tensor:
    """The share of normal numbers below x."""
    return erfc(-floats(input) / math.sqrt(2)) / 2


@op(
    "special.log_ndtr",
    why="aten::special_log_ndtr is not supported by trace; non-finite values differ: -inf for large negative numbers",
    reason="special_log_ndtr|non-finite",
    tries=lambda b, n: numbers(b, n) * 12,
)
def log_ndtr(input: Tensor) -> Tensor:
    """The logarithm of the share of normal numbers below x."""
    x = floats(input) / math.sqrt(2)
    scaled = erfc_scaled(x.abs())
    return torch.where(x < 0, torch.log(scaled / 2) - x * x, log1p(-scaled * torch.exp(-x * x) / 2))


op(
    "erfinv",
    why=missing("aten::erfinv", "prims::erf_inv"),
    tries=shares,
    case=lambda x: (torch.erfinv(x), (x * x - 1).erfinv()),
    to=lambda x: elementary.erfinv(floats(x)),
)


@op(
    "special.ndtri",
    why=missing("aten::special_ndtri", "prims::ndtri"),
    tries=shares,
    case=lambda x: torch.special.ndtri(x * x),
)
def ndtri(input: Tensor) -> Tensor:
    """The number below which a share x of normal numbers is."""
    x = floats(input)
    # The difference from a half has no digits of small shares.
    return normal_quantile(x - 0.5, torch.minimum(x, 1 - x))


@op("special.entr", why=untraced("aten::special_entr"), tries=numbers)
def entr(input: Tensor) -> Tensor:
    """-x log(x); 0 at 0 and -inf below."""
    x = floats(input)
    inside = -x * torch.log(torch.where(x > 0, x, torch.ones_like(x)))
    return torch.where(x < 0, torch.full_like(x, -math.inf), torch.where(torch.isnan(x), x, inside))


@op("special.xlog1py", why=untraced("aten::special_xlog1py"), tries=lambda b, n: (numbers(b, n), positive(b, n)))
def xlog1py(input: Tensor | float, other: Tensor | float) -> Tensor:
    """x log(1 + y); 0 where x is 0."""
    y = floats(torch.as_tensor(other))
    found = input * log1p(y)
    return torch.where((torch.as_tensor(input) == 0) & ~torch.isnan(y), torch.zeros_like(found), found)


@op(
    "logaddexp",
    "logaddexp2",
    name="logaddexp2",
    why="aten::logaddexp and aten::logaddexp2 are not supported by trace; dynamo's exponentials are infinite at 89",
    reason="logaddexp|non-finite",
    tries=lambda b, n: (numbers(b, n) * 100, numbers(b, n).flip(1) * 100),
)
def log_of_sum(original: Callable[..., Tensor], input: Tensor, other: Tensor) -> Tensor:
    """log(e**x + e**y), or the same of 2, relative to the larger one."""
    unit = math.log(2) if original.__name__.endswith("2") else 1.0
    apart = torch.where(input == other, 0.0, (input - other).abs())  # of two infinities, too
    return torch.maximum(input, other) + softplus(-apart * unit) / unit


@op(
    "signbit",
    why="aten::signbit is not supported by trace; dynamo takes -0.0 for a positive number",
    reason="signbit|flags differ",
    tries=lambda n: torch.linspace(-2, 2, n) * torch.tensor(-1.0),
)
def signbit(input: Tensor) -> Tensor:
    """Whether a number is negative, -0.0 too."""
    if not input.is_floating_point():
        return input < 0
    return (input < 0) | (torch.reciprocal(input) < 0)


@op(
    "copysign",
    why=missing("aten::copysign", "prims::signbit"),
    reason="copysign|signbit|int64, eager has float32",
    tries=lambda b, n: (torch.randn(b, n), torch.randn(b, n).round()),
    case=lambda x, y: (torch.copysign(x, y), y.long().copysign(x.long()), torch.copysign(y, -2.0), (x > 0).copysign(y)),
)
def copysign(input: Tensor, other: Tensor | float) -> Tensor:
    """The size of one number with the sign of the other; floats, of whole numbers too."""
    dtype = torch.result_type(input, other)
    size = floats(input.to(dtype)).abs()
    return torch.where(signbit(floats(torch.as_tensor(other))), -size, size)


_ROUNDED = ("ceil", "floor", "round", "trunc")


@op(
    "isnan",
    "isinf",
    "isfinite",
    *_ROUNDED,
    name="finite-whole-numbers",
    why="Type 'tensor(int64)' of input parameter (x) of operator (IsNaN, Floor) is invalid",
    reason="IsNaN|IsInf|aten::trunc",
    tries=lambda b, n: torch.arange(b * n).reshape(b, n) - 2,
    case=lambda x: (x.isnan(), torch.isnan(x > 0), torch.isinf(x.int()), torch.isfinite(x.to(torch.uint8)), x.trunc(),
                    torch.ceil(x.to(torch.int8)), x.floor(), x.round()),
    unchanged=lambda x: torch.isnan(x / 0),
)  # fmt: skip
def finite(original: Callable[..., Tensor], input: Tensor, **decimals: int) -> Tensor:
    """Of numbers that are finite and whole in any case."""
    if input.is_floating_point() or input.is_complex():
        return NotImplemented
    if original.__name__ in _ROUNDED:
        return input.clone()
    made = torch.ones_like if original.__name__ == "isfinite" else torch.zeros_like
    return made(input, dtype=torch.bool)


op("isposinf", why=untraced("aten::isposinf"), tries=lambda b, n: 1 / numbers(b, n), to=lambda x: x == math.inf)
op("isneginf", why=untraced("aten::isneginf"), tries=lambda b, n: -1 / numbers(b, n), to=lambda x: x == -math.inf)


@op("ldexp", why=untraced("aten::ldexp"), tries=lambda b, n: (numbers(b, n), torch.randint(-4, 5, (b, n))))
def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """x 2**y, in three factors: a power alone may be infinite, or 0, where the product is not."""
    both = torch.promote_types(input.dtype, other.dtype)
    dtype = both if both.is_floating_point else torch.get_default_dtype()
    wide, most = (torch.float64, 2200) if dtype == torch.float64 else (torch.float32, 300)
    power = other.to(wide).clamp(-most, most)
    third = torch.round(power / 3)
    part = torch.pow(2.0, third)
    return (input.to(wide) * part * part * torch.pow(2.0, power - 2 * third)).to(dtype)
