"""Elementary functions in operations of ONNX that are as exact as torch's: near 0, and at multiples of a divisor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

# Chebyshev fit of log(erfcx(z) / t) in t = 2 / (2 + z), seven digits (Numerical Recipes, erfcc).
_ERFC = (
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587, -0.82215223,
    0.17087277,
)  # fmt: skip
# The normal quantile, seven digits: Wichura's PPND7 (Applied Statistics 241). Numerator and denominator of each part.
_CENTER = (3.3871327179, 50.434271938, 159.29113202, 59.109374720), (1.0, 17.895169469, 78.757757664, 67.187563600)
_NEAR = (1.4234372777, 2.7568153900, 1.3067284816, 0.17023821103), (1.0, 0.73700164250, 0.12021132975)
_FAR = (6.6579051150, 3.0812263860, 0.42868294337, 0.017337203997), (1.0, 0.24197894225, 0.012258202635)

# A fit of erfinv(x) / x in log(1 - x**2) from -17 to 0, within 3e-7 in float32: numerator and denominator.
_ERFINV = (
    (-37260.4336, 12936.7402, -2518.20679, 328.282379, -27.1995430, 1.0),
    (-42043.8945, 3590.50439, -1353.48828, 80.2256470, -7.46552992, 0.0525959879),
)


def floats(x: Tensor) -> Tensor:
    """x, whole numbers and flags as floats of the default width."""
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


def fractional(value: object) -> bool:
    """Whether a number is a float, or those of a tensor are."""
    return value.is_floating_point() if isinstance(value, Tensor) else isinstance(value, float | torch.SymFloat)


def polynomial(x: Tensor, terms: Sequence[float]) -> Tensor:
    """terms[0] + terms[1] x + terms[2] x**2 + ..."""
    found = (x if terms[-1] == 1 else terms[-1] * x) + terms[-2]
    for term in reversed(terms[:-2]):
        found = found * x + term
    return found


def log1p(x: Tensor) -> Tensor:
    """log(1 + x)."""
    # 1 + x is rounded to another number, which counts for a small x: its logarithm is off by what was added.
    near = x.clamp(-0.5, 1.0)
    whole = 1 + near
    return torch.log(1 + x) + (near - (whole - 1)) / whole


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), faster than onnxruntime's Softplus."""
    part = torch.exp(-x.abs())
    whole = 1 + part
    return torch.relu(x) + (torch.log(whole) - (whole - 1 - part) / whole)


def expm1(x: Tensor) -> Tensor:
    """exp(x) - 1."""
    # The difference has no digits of a small x; this product has.
    return torch.tanh(x * 0.5) * (torch.exp(x) + 1)


def cosh(x: Tensor) -> Tensor:
    """(exp(x) + exp(-x)) / 2."""
    half = torch.exp(x.abs() * 0.5)
    # In two factors: the exponential alone is infinite before its half is.
    return 0.5 * half * half + 0.5 / half / half


def cut_off(x: Tensor) -> Tensor:
    """x without what is behind the point."""
    return torch.maximum(torch.floor(x), torch.minimum(torch.ceil(x), torch.zeros((), dtype=x.dtype)))


def hypot(x: Tensor, y: Tensor) -> Tensor:
    """sqrt(x**2 + y**2), where a square is beyond the floats, too."""
    x, y = x.abs(), y.abs()
    most = torch.maximum(x, y)
    share = torch.minimum(x, y) / torch.where(most == 0, torch.ones_like(most), most)
    # An infinity counts beside NaN, too.
    infinite = torch.isinf(x) | torch.isinf(y)
    return torch.where(infinite, torch.full_like(most, math.inf), most * torch.sqrt(1 + share * share))


def erfc_scaled(size: Tensor) -> Tensor:
    """exp(x**2) erfc(x), of a positive x."""
    t = 2 / (2 + size)
    return t * torch.exp(polynomial(t, _ERFC))


def erfc(x: Tensor) -> Tensor:
    """1 - erf(x), its tail too."""
    size = x.abs()
    tail = erfc_scaled(size) * torch.exp(-size * size)
    return torch.where(x < 0, 2 - tail, tail)


def normal_quantile(q: Tensor, outside: Tensor | None = None) -> Tensor:
    """The x below which a normal number is with the probability 0.5 + q; -0.5 <= q <= 0.5.

    outside: 0.5 - |q|, if it is known with more digits.
    """
    outside = 0.5 - q.abs() if outside is None else outside

    def quotient(x: Tensor, parts: tuple[Sequence[float], Sequence[float]]) -> Tensor:
        return polynomial(x, parts[0]) / polynomial(x, parts[1])

    center = q * quotient(0.180625 - q * q, _CENTER)
    root = torch.sqrt(-torch.log(outside))
    tail = torch.where(root <= 5, quotient(root - 1.6, _NEAR), quotient(root - 5, _FAR))
    found = torch.where(q.abs() <= 0.425, center, torch.sign(q) * tail)
    found = torch.where(outside == 0, torch.sign(q) * math.inf, found)
    return torch.where(outside < 0, torch.full_like(q, math.nan), found)


def erfinv(x: Tensor) -> Tensor:
    """The number whose error function is x. The fit is one for float32: no other one is as near to 1."""
    if x.dtype != torch.float32:
        return normal_quantile(x / 2) / math.sqrt(2)
    rest = torch.log((1 - x) * (1 + x))
    near = rest.clamp(min=-17.0)
    # What is taken away is nothing but at 1 and -1, where it is infinite.
    return x * (polynomial(near, _ERFINV[0]) / polynomial(near, _ERFINV[1]) - rest * 1e-38)


def floor_quotient(input: Tensor, other: Tensor | float) -> Tensor:
    """`input // other` of floats of any shape. 6 // 0.1 is 59, since 0.1 is a little more than a tenth; the floor of
    6 / 0.1 is 60."""
    dtype = torch.result_type(input, other)
    by = torch.as_tensor(other, dtype=dtype)
    if dtype == torch.float64:
        return _without_rest(input, by)
    # Of two float32 no quotient is so near to a whole number that float64 takes it for one. -1 // inf is -1.
    most = torch.finfo(torch.float32).max
    wide, by = input.to(torch.float64), by.to(torch.float64).clamp(-most, most)
    # An infinity has no quotient, but by 0.
    unknown = wide - wide
    unknown = torch.where(by == 0, torch.zeros_like(by), unknown) if isinstance(other, Tensor) or not other else unknown
    return (torch.floor(torch.true_divide(wide, by)) + unknown).to(dtype)


def _without_rest(input: Tensor, other: Tensor) -> Tensor:
    """The same: what leaves no rest is divided."""
    rest = torch.fmod(input, other)
    quotient = torch.true_divide(input - rest, other)
    below = (rest != 0) & ((rest < 0) ^ (other < 0))
    # Without its rest the quotient is a whole number but for rounding, up or down: so round, not floor.
    whole = torch.round(torch.where(below, quotient - 1, quotient))
    return torch.where(other == 0, torch.true_divide(input, other), whole)


def floor_rest(input: Tensor, other: Tensor) -> Tensor:
    """`input % other` of floats of one dtype: the rest, with the sign of `other`."""
    rest = torch.fmod(input, other)
    return torch.where((rest != 0) & ((rest < 0) != (other < 0)), rest + other, rest)


def by_channel(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """x * weight + bias, which belong to axis 1, the channels."""
    shape = [1, -1] + [1] * (x.dim() - 2)
    x = x if weight is None else x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """The loss of each element or row as it is ("none"), their sum, or their mean."""
    return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.mean()
