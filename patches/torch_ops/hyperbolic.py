"""Hyperbolic, error and other functions of one number that the exporters lack."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from onnxpatch import missing, op
from onnxpatch.formulas.elementary import erfc, erfc_scaled, expm1, floats, log1p, normal_quantile, softplus
from onnxpatch.formulas.tries import numbers, pairs, positive, shares

lacking = functools.partial(missing, exporters=("trace",))


@op("sinh", why=lacking("aten::sinh"), tries=numbers)
def sinh(input: Tensor) -> Tensor:
    """(exp(x) - exp(-x)) / 2, which keeps the digits of a small x."""
    x = floats(input)
    grown = expm1(x.abs())
    return torch.sign(x) * (grown + grown / (1 + grown)) / 2


@op("cosh", why=lacking("aten::cosh"), tries=numbers)
def cosh(input: Tensor) -> Tensor:
    """(exp(x) + exp(-x)) / 2."""
    x = floats(input)
    return (torch.exp(x) + torch.exp(-x)) / 2


@op("atanh", "arctanh", why=lacking("aten::atanh"), tries=shares, case=lambda x: (torch.atanh(x), x.neg().arctanh()))
def atanh(input: Tensor) -> Tensor:
    """The number whose hyperbolic tangent is x."""
    size = floats(input).abs()
    return torch.sign(input) * log1p(2 * size / (1 - size)) / 2


@op(
    "acosh",
    "arccosh",
    why=lacking("aten::acosh"),
    tries=positive,
    case=lambda x: (torch.acosh(x + 1), (x + 1).arccosh()),
)
def acosh(input: Tensor) -> Tensor:
    """The positive number whose hyperbolic cosine is x."""
    above = floats(input) - 1
    return log1p(above + torch.sqrt(above) * torch.sqrt(above + 2))


@op("erfc", why=lacking("aten::erfc"), tries=lambda b, n: numbers(b, n) * 3)
def complement(input: Tensor) -> Tensor:
    """1 - erf(x), of large x too."""
    return erfc(floats(input))


@op("special.erfcx", why=lacking("aten::special_erfcx"), tries=numbers)
def erfcx(input: Tensor) -> Tensor:
    """exp(x**2) erfc(x)."""
    x = floats(input)
    found = erfc_scaled(x.abs())
    return torch.where(x < 0, 2 * torch.exp(x * x) - found, found)


@op("special.ndtr", why=lacking("aten::special_ndtr"), tries=lambda b, n: numbers(b, n) * 3)
def ndtr(input: Tensor) -> Tensor:
    """The share of normal numbers below x."""
    return erfc(-floats(input) / math.sqrt(2)) / 2


@op("special.log_ndtr", why=lacking("aten::special_log_ndtr"), tries=lambda b, n: numbers(b, n) * 5)
def log_ndtr(input: Tensor) -> Tensor:
    """The logarithm of the share of normal numbers below x."""
    x = floats(input) / math.sqrt(2)
    scaled = erfc_scaled(x.abs())
    return torch.where(x < 0, torch.log(scaled / 2) - x * x, log1p(-scaled * torch.exp(-x * x) / 2))


@op(
    "erfinv",
    why=missing("aten::erfinv", "prims::erf_inv"),
    tries=shares,
    case=lambda x: (torch.erfinv(x), (x * x - 1).erfinv()),
)
def erfinv(input: Tensor) -> Tensor:
    """The number whose error function is x."""
    return normal_quantile(floats(input) / 2) / math.sqrt(2)


@op(
    "special.ndtri",
    why=missing("aten::special_ndtri", "prims::ndtri"),
    tries=shares,
    case=lambda x: torch.special.ndtri(x * x),
)
def ndtri(input: Tensor) -> Tensor:
    """The number below which a share x of normal numbers is."""
    x = floats(input)
    # In float64: the difference from a half has no digits of small shares.
    return normal_quantile(x.double() - 0.5).to(x.dtype)


@op("special.entr", why=lacking("aten::special_entr"), tries=numbers)
def entr(input: Tensor) -> Tensor:
    """-x log(x); 0 at 0 and -inf below."""
    x = floats(input)
    inside = -x * torch.log(torch.where(x > 0, x, torch.ones_like(x)))
    return torch.where(x < 0, torch.full_like(x, -math.inf), torch.where(torch.isnan(x), x, inside))


@op("special.xlog1py", why=lacking("aten::special_xlog1py"), tries=lambda b, n: (numbers(b, n), positive(b, n)))
def xlog1py(input: Tensor | float, other: Tensor | float) -> Tensor:
    """x log(1 + y); 0 where x is 0."""
    y = floats(torch.as_tensor(other))
    found = input * log1p(y)
    return torch.where((torch.as_tensor(input) == 0) & ~torch.isnan(y), torch.zeros_like(found), found)


@op("logaddexp2", why=lacking("aten::logaddexp2"), tries=pairs)
def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """log2(2**x + 2**y), relative to the larger one."""
    return torch.maximum(input, other) + softplus(-(input - other).abs() * math.log(2)) / math.log(2)


@op("signbit", why=lacking("aten::signbit"), tries=lambda n: torch.linspace(-2, 2, n) * torch.tensor(-1.0))
def signbit(input: Tensor) -> Tensor:
    """Whether a number is negative, -0.0 too."""
    if not input.is_floating_point():
        return input < 0
    return (input < 0) | (torch.reciprocal(input) < 0)


op("isposinf", why=lacking("aten::isposinf"), tries=lambda b, n: 1 / numbers(b, n), to=lambda x: x == math.inf)
op("isneginf", why=lacking("aten::isneginf"), tries=lambda b, n: -1 / numbers(b, n), to=lambda x: x == -math.inf)


@op("angle", why=lacking("aten::angle"), tries=numbers)
def angle(input: Tensor) -> Tensor:
    """0, or pi for a negative number."""
    if input.is_complex():
        return NotImplemented
    x = floats(input)
    return torch.where(torch.isnan(x), x, torch.where(x < 0, torch.full_like(x, math.pi), torch.zeros_like(x)))


def _exponents(b: int, n: int) -> tuple[Tensor, Tensor]:
    return numbers(b, n), torch.randint(-4, 5, (b, n))


@op("ldexp", why=lacking("aten::ldexp"), tries=_exponents)
def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """x 2**y."""
    return input * torch.pow(2.0, floats(other))
