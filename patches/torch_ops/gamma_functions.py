"""The gamma function, its logarithm and slopes, zeta, the multivariate and the incomplete ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import missing, op, while_loop
from onnxpatch.formulas.elementary import erfc, floats, log1p, polynomial

# Lanczos approximation with g = 7 and nine terms: 15 digits.
_G = 7.0
_LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip
# For float32, seven digits: lgamma(z) / ((z - 1) (z - 2)) by z - 1.75, from 0.5 to 3, and Stirling's series beyond.
_NEAR = (
    (0.45013934, 0.434312996, 0.120299676, 0.00830470487),
    (1.0, 1.2302737, 0.494901734, 0.0704631614, 0.0023324439),
)
_STIRLING = (1 / 12, -1 / 360, 1 / 1260)


@op(
    "lgamma",
    "special.gammaln",
    why=missing("aten::lgamma"),
    # On both sides of the poles at 0, -1, ..., and through the roots at 1 and 2.
    tries=lambda n: torch.linspace(-4.7, 5.2, n)[:, None] + torch.rand(n, 2) * 0.1,
    sizes=(9, 40, 1),
    case=lambda x: (torch.lgamma(x), torch.special.gammaln(x.abs() * 20 + 1e-3), x.lgamma()),
)
def lgamma(input: Tensor) -> Tensor:
    """log |gamma(x)|: to the right of 0.5 by `_right`, by reflection to the left of it."""
    wide = input if input.dtype == torch.float64 else input.to(torch.float32)
    x = wide.clamp(min=-1e36)  # -inf is inf, as a pole
    found = _right(torch.maximum(x, 1 - x))
    # gamma(x) gamma(1 - x) = pi / sin(pi x). The sine is that of the distance to the nearest integer, which is exact;
    # at the poles its logarithm is -inf.
    mirrored = math.log(math.pi) - torch.log(torch.sin(math.pi * (x - torch.round(x))).abs()) - found
    return torch.where(x < 0.5, mirrored, found).to(input.dtype if input.is_floating_point() else wide.dtype)


def _right(z: Tensor) -> Tensor:
    log_2pi = math.log(2 * math.pi)
    if z.dtype == torch.float64:
        series = torch.full_like(z, _LANCZOS[0])
        for number, term in enumerate(_LANCZOS[1:]):
            series = series + term / (z + number)
        return log_2pi / 2 - _G + (z - 0.5) * (torch.log(z + _G - 0.5) - 1) + torch.log(series)
    near, over = z.clamp(max=3.0), 1 / z
    low = polynomial(near - 1.75, _NEAR[0]) / polynomial(near - 1.75, _NEAR[1]) * (near - 1) * (near - 2)
    high = (z - 0.5) * (torch.log(z) - 1) + (log_2pi - 1) / 2 + polynomial(over * over, _STIRLING) * over
    return torch.where(z < 3, low, high)


_TERMS = 5  # summed one by one, before the formula of Euler and Maclaurin takes over
# B(2k) / (2k)! of the Bernoulli numbers B(2k), -B(2k) / 2k, and themselves.
_ZETA = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000)
_DIGAMMA = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760, -1 / 12)
_TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66)
_PAIRED = (0, 6, 10, 12)  # (x + k) (x + 7 - k) without x (x + 7)


def _both_signs(n: int) -> Tensor:
    return torch.linspace(-6.3, 14.1, 8 * n + 1)


@op("digamma", "special.psi", why=missing("aten::digamma"), tries=_both_signs)
def digamma(input: Tensor) -> Tensor:
    """The slope of log(gamma(x)); by reflection below 0.5."""
    wide = floats(input)
    wide = wide if wide.dtype == torch.float64 else wide.to(torch.float32)
    x = torch.where(wide < 0.5, 1 - wide, wide)
    over, near = 1 / (x + 8), x.clamp(max=1e15)
    # 1 / x + ... + 1 / (x + 7), the first and the last together, and so on.
    pair = near * (near + 7)
    rest = sum(1 / (pair + more) for more in _PAIRED) * (2 * near + 7)
    found = over * (over * polynomial(over * over, _DIGAMMA) - 0.5) - torch.log(over) - rest
    # The cotangent, of the distance to the nearest whole number, which is exact.
    part = math.pi * (wide - torch.round(wide))
    mirrored = found - math.pi * torch.sin(part + math.pi / 2) / torch.sin(part)
    found = torch.where(wide < 0.5, mirrored, found)
    found = torch.where((wide < 0) & (part == 0), math.nan, found)
    return torch.where(wide == 0, -torch.reciprocal(wide), found).to(floats(input).dtype)


def trigamma(x: Tensor) -> Tensor:
    """The slope of digamma, by reflection as in eager: its poles are the large numbers that a rounded sine gives."""
    sine = torch.sin((math.pi * x).to(torch.float64)).to(x.dtype)
    below = x < 0.5
    x = torch.where(below, 1 - x, x)
    over, pair = 1 / (x + 8), x * (x + 7)
    found = over * (1 + over * (0.5 + over * polynomial(over * over, _TRIGAMMA)))
    # The squares of two numbers are twice their product and the square of what they are apart.
    found = found + sum((2 + (49 - 4 * more) / (pair + more)) / (pair + more) for more in _PAIRED)
    return torch.where(below, (math.pi / sine) ** 2 - found, found)


def _zeta(s: Tensor, q: Tensor) -> Tensor:
    """Hurwitz' zeta function, the sum of (q + k)**-s, of positive q."""
    # Of a larger s nothing is left of what follows, and its products are beyond the floats.
    s, above = s.clamp(max=1e9), q + _TERMS
    steps = torch.arange(_TERMS, dtype=q.dtype, device=q.device).reshape([-1, *[1] * q.dim()])
    power = torch.exp(-s * torch.log(above))
    found = torch.exp(-s * torch.log(q + steps)).sum(0) + power * (above / (s - 1) + 0.5)
    rest, square = torch.zeros_like(s), above * above
    for k in reversed(range(len(_ZETA))):
        rest = rest * ((s + (2 * k + 1)) * (s + (2 * k + 2)) / square) + _ZETA[k]
    return found + rest * s / above * power


def zeta(s: Tensor, q: Tensor) -> Tensor:
    """The same of any q, in their dtype. As in eager it is inf at the poles, and NaN where there is no real number."""
    above, whole = q > 0, q == torch.floor(q)
    pole = (s == 1) | ((s > 1) & ~above & whole)
    known = (s > 1) & (above | ((s == torch.floor(s)) & ~whole))
    nothing = torch.where(pole, math.inf, math.nan).to(q.dtype).reshape(-1)
    # As in eager, what has no value costs nothing.
    places = torch.nonzero(known.reshape(-1)).squeeze(-1)
    s, q = (one.expand_as(known).reshape(-1)[places].to(torch.float64) for one in (s, q))
    mirrors = torch.where(q > 0, torch.ones_like(q), torch.stack((torch.ceil(q) - q, 1 - q)))
    parts = _zeta(s, torch.cat((torch.where(q > 0, q, q - torch.floor(q)).unsqueeze(0), mirrors)))
    # The sum over all whole numbers, without those below q. (-k)**-s has the sign of an odd s.
    sign = 1 - 2 * torch.remainder(s, 2)
    found = torch.where(q > 0, parts[0], parts[0] + sign * (parts[1] - parts[2]))
    return nothing.scatter(0, places, found.to(nothing.dtype)).reshape(known.shape)


def _exponents(n: int) -> tuple[Tensor, Tensor]:
    return torch.arange(8 * n + 1) % 5 + 1.5 * (torch.arange(8 * n + 1) % 2), _both_signs(n)


def _zetas(s: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    return torch.special.zeta(s, q.abs()), torch.special.zeta(3, q), torch.special.zeta(s, 2.5)


@op("special.zeta", why=missing("aten::special_zeta", "prims::zeta"), tries=_exponents, case=_zetas)
def hurwitz(input: Any, other: Any) -> Tensor:
    """Hurwitz' zeta function."""
    dtype = floats(torch.ones((), dtype=torch.result_type(input, other))).dtype
    return zeta(*(torch.as_tensor(one).to(dtype) for one in (input, other)))


_LARGEST_FACTORIAL = 170  # of float64


def _slopes(x: Tensor) -> tuple[Tensor, ...]:
    return torch.polygamma(0, x), x.polygamma(1), torch.special.polygamma(2, x), torch.polygamma(3, x)


@op("polygamma", why=missing("aten::polygamma"), tries=_both_signs, case=_slopes)
def polygamma(first: Any, second: Any) -> Tensor:
    """The n-th slope of digamma, by the zeta function. torch.polygamma(n, x), and x.polygamma(n)."""
    n, x = (second, first) if isinstance(first, Tensor) else (first, second)
    if n == 0:
        return digamma(x)
    if n == 1:
        return trigamma(x if x.dtype == torch.float64 else x.to(torch.float32)).to(floats(x).dtype)
    wide = floats(x).to(torch.float64)
    scale = float(math.factorial(n)) if n <= _LARGEST_FACTORIAL else math.inf
    found = (-1) ** (n + 1) * scale * zeta(torch.full_like(wide, n + 1), wide)
    return found.to(floats(x).dtype)


@op(
    "mvlgamma",
    "special.multigammaln",
    why=missing("aten::mvlgamma", "aten::lgamma"),
    beside=("lgamma",),
    tries=lambda n: torch.linspace(1.1, 9, n),
    case=lambda x: (torch.mvlgamma(x, 1), x.mvlgamma(3)),
)
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension p."""
    x = floats(input)
    # Beside each other on the first axis: sums over the last one are slow.
    found = torch.lgamma(torch.stack([x - step / 2 for step in range(p)])).sum(0) if p > 1 else torch.lgamma(x)
    return found + p * (p - 1) / 4 * math.log(math.pi)


_SMALL, _TINY = 1e-12, 1e-300
_LARGE = 1000.0  # from this a on a formula takes the place of rounds, whose number grows with the root of a
# Of the difference from a normal distribution, by powers of eta (Temme 1979).
_TEMME = (
    -0.33333333333, 0.083333333333, -0.014814814815, 0.0011574074074, 0.00035273368607, -0.00017875514403,
    3.9192631785e-05, -2.1854485107e-06,
)  # fmt: skip
_TEMME_NEXT = (-0.0018518518519, -0.0034722222222, 0.0026455026455, -0.00099022633745)


def _of_large(a: Tensor, x: Tensor, lower: bool) -> Tensor:
    """The share below (or above) x of the gamma distribution of a large a."""
    beyond = (x - a) / a
    eta = torch.sign(beyond) * torch.sqrt(2 * (beyond - log1p(beyond)).clamp(min=0))
    near = eta.clamp(-0.5, 0.5)  # further away nothing is left of the second part
    rest = polynomial(near, _TEMME) + polynomial(near, _TEMME_NEXT) / a
    rest = rest * torch.exp(-a * eta * eta / 2) / torch.sqrt(2 * math.pi * a)
    place = eta * torch.sqrt(a / 2)
    return erfc(-place) / 2 - rest if lower else erfc(place) / 2 + rest


def _series(a: Tensor, x: Tensor) -> Tensor:
    """1 + x / (a + 1) + x**2 / ((a + 1) (a + 2)) + ..."""

    @while_loop(lambda k, term, total: (term > total * _SMALL).any())
    def run(k: Tensor, term: Tensor, total: Tensor) -> tuple[Tensor, ...]:
        term = term * x / (a + k)
        return k + 1, term, total + term

    one = torch.ones_like(a)
    return run(one, one.clone(), one.clone())[2]


def _fraction(a: Tensor, x: Tensor) -> Tensor:
    """The continued fraction of the upper part, by Lentz' method."""

    @while_loop(lambda k, b, c, d, found, step: ((step - 1).abs() > _SMALL).any())
    def run(k: Tensor, b: Tensor, c: Tensor, d: Tensor, found: Tensor, step: Tensor) -> tuple[Tensor, ...]:
        factor, b = k * (a - k), b + 2
        d, c = factor * d + b, b + factor / c
        d = 1 / torch.where(d.abs() < _TINY, torch.full_like(d, _TINY), d)
        c = torch.where(c.abs() < _TINY, torch.full_like(c, _TINY), c)
        return k + 1, b, c, d, found * d * c, d * c

    b = x + 1 - a
    return run(torch.ones_like(a), b, torch.full_like(a, 1 / _TINY), 1 / b, 1 / b, torch.full_like(a, 2.0))[4]


@op(
    "igamma",
    "igammac",
    "special.gammainc",
    "special.gammaincc",
    name="incomplete-gamma",
    tries=lambda n: (torch.linspace(0.2, 30, 8 * n), torch.linspace(0, 40, 8 * n).roll(n)),
    case=lambda a, x: (torch.igamma(a, x), a.igammac(x)),
    why=missing("aten::igamma", "aten::igammac"),
    beside=("lgamma",),
)
def igamma(original: Callable[..., Tensor], input: Tensor, other: Tensor) -> Tensor:
    """The share of the gamma distribution below `other` (above it: igammac): a series, or a continued fraction."""
    dtype = torch.result_type(input, other)
    a, x = torch.broadcast_tensors(input.to(torch.float64), other.to(torch.float64))
    lower = original.__name__ in ("igamma", "special_gammainc", "gammainc")
    known = (a > 0) & (x > 0) & (a.abs() != math.inf) & (x.abs() != math.inf)
    # Where a form is not asked for, it gets numbers at which it ends soon.
    few, one = known & (a < _LARGE), torch.ones_like(a)
    a_known, x_known = torch.where(few, a, one), torch.where(few, x, one)
    near = x_known < a_known + 1
    front = torch.exp(a_known * torch.log(x_known) - x_known - torch.lgamma(a_known))
    below = front / a_known * _series(a_known, torch.where(near, x_known, torch.zeros_like(x)))
    above = front * _fraction(a_known, torch.where(near, 2 * a_known + 100, x_known))
    share = torch.where(near, below, 1 - above)
    upper = torch.where(near, 1 - below, above)
    whole = ((a == 0) & (x > 0)) | ((x == math.inf) & (a >= 0) & (a != math.inf))
    nothing = ((x == 0) & (a > 0)) | ((a == math.inf) & (x >= 0) & (x != math.inf))
    many = known & (a >= _LARGE)
    large = _of_large(torch.where(many, a, one * _LARGE), torch.where(many, x, one * _LARGE), lower)
    found = torch.where(few, share if lower else upper, torch.where(many, large, torch.full_like(x, math.nan)))
    found = torch.where(whole, torch.full_like(x, 1.0 if lower else 0.0), found)
    return torch.where(nothing, torch.full_like(x, 0.0 if lower else 1.0), found).to(dtype)
