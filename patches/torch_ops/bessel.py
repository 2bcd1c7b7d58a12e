"""Bessel functions of order 0 and 1 and Airy's Ai, by polynomials on two or three parts of the axis.

Each part is the function without its singularity, growth or oscillation, fitted with an error below 3e-7: up to 8 (4.5
for J and Y, 2 for K, 3 for Ai) in the squared argument, beyond it in its reciprocal.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import missing, op
from onnxpatch.formulas.elementary import floats, polynomial

Parts = tuple[tuple[float, ...], tuple[float, ...]]
# By order: near 0, and far from it.
_I: tuple[Parts, Parts] = (
    (
        (1, 16, 64.000000001, 113.77777775, 113.77777819, 72.817774415, 32.363475437, 10.567586564, 2.6421191471,
         0.52144493272, 0.08410352355, 0.010414704299, 0.001669864635, -8.5802906359e-05, 6.2019525211e-05,
         -5.0179403718e-06),
        (0.39894228038, 0.0062334761209, 0.00043822100546, 5.7678629215e-05, 8.4114716283e-06, 8.074293903e-06,
         -4.6782397028e-06, 2.4892030597e-06, 3.8953463326e-07),
    ),
    (
        (0.5, 4, 10.666666667, 14.222222222, 11.377777779, 6.0681481314, 2.3116754989, 0.66047939819, 0.14676794565,
         0.026111651501, 0.0037533773466, 0.00052159187203, -1.2095284273e-05, 4.0384373554e-05, -1.2457329562e-05,
         2.0029485639e-06),
        (0.39894228042, -0.018700422421, -0.00073041456141, -8.0506029766e-05, -1.1561883043e-05, -8.5255233445e-06,
         4.1302125968e-06, -2.0918328755e-06, -6.2182119475e-07),
    ),
)  # fmt: skip
_K: tuple[Parts, Parts] = (
    (
        (-0.5772156649, 0.4227843351, 0.23069608366, 0.034892158368, 0.0026147840486, 0.00011848798433,
         3.6037010048e-06, 8.4785215473e-08),
        (1.2533141369, -0.078332035259, 0.022027396373, -0.011424323571, 0.0084069163967, -0.0071389590941,
         0.0056272834187, -0.0033829286075, 0.0012821946077, -0.00022249799507),
    ),
    (
        (1, 0.15443132972, -0.67278433332, -0.18157518119, -0.019182134066, -0.0011154780607, -4.128315956e-05,
         -1.1562910135e-06),
        (1.2533141379, 0.23499628603, -0.036714089706, 0.016005896305, -0.010856023707, 0.0088394398011,
         -0.0068200795652, 0.0040548194714, -0.0015275277662, 0.00026411514922),
    ),
)  # fmt: skip
# In x**2 - 10.125, from -10.125 to 10.125: by powers of x**2 the terms would cancel.
_J_NEAR = (
    (-0.31541377212, -0.04220112112, 0.0059780049999, -0.00021994621844, 3.991800907e-06, -4.3869963059e-08,
     3.2666844573e-10, -1.7461098529e-12),
    (0.084402242069, -0.023912025716, 0.0013196773516, -3.1934109945e-05, 4.386983028e-07, -3.9229215161e-09,
     2.4455899797e-11),
)  # fmt: skip
_Y_NEAR = (
    (0.54612705162, -0.016686661553, -0.0045915604624, 0.0002457031268, -5.2950802823e-06, 6.4853005244e-08,
     -5.2238054893e-10, 2.9655780619e-12),
    (0.11608131475, 0.012850999827, -0.0013053757021, 3.9513633571e-05, -6.1838430694e-07, 6.0541671422e-09,
     -4.0379046924e-11),
)  # fmt: skip
# Of the wave beyond 4.5: its height, and what its phase is ahead.
_WAVES: tuple[Parts, Parts] = (
    ((0.99999991497, -0.062443033765, 0.097000076757, -0.26810493515),
     (-0.12499970583, 0.064918807283, -0.18787904759, 0.67109535239)),
    ((1.0000001254, 0.1874195522, -0.18424391747, 0.42733894842),
     (0.37499955047, -0.16380235447, 0.34083161418, -1.0547065031)),
)  # fmt: skip
_AIRY_NEAR = (
    0.35502805716, -0.77645792555, -1.0258539103e-06, 1.5976150503, -1.7469990787, 0.00013043909922, 1.4375212634,
    -1.1237848152, 0.0017838547948, 0.54115107824, -0.34211819691, -0.0029925690234, 0.11920973368, -0.056112505198,
    -0.0090480662956, 0.014066634407, -0.0014881294571, -0.00091266026574,
)  # fmt: skip
_AIRY_RIGHT = (
    0.99999999847, -0.020046727881, 0.0030917793619, -0.00089620533428, 0.0003407708482, -0.00011702816164,
    2.1989879159e-05,
)  # fmt: skip
_AIRY_WAVE: Parts = (
    (0.99999999477, -0.0030940453792, 0.00039478644148, -0.00013848058782, 5.6247775766e-05, -1.2838346085e-05),
    (0.069444423909, -0.0031644496813, 0.00078368378394, -0.00038040734495, 0.00017860236244, -4.3459230961e-05),
)
_BOUND, _WAVE_BOUND, _K_BOUND, _AIRY_BOUND = 8.0, 4.5, 2.0, 3.0


def i(order: int, x: Tensor, scaled: bool) -> Tensor:
    """The modified Bessel function I of order 0 or 1; exp(-|x|) I(x) if `scaled`."""
    size, far = x.abs(), _I[order][1]
    part, rest = size.clamp(max=_BOUND), size.clamp(min=_BOUND)
    # In two factors: the exponential alone is infinite before the quotient is.
    grown = torch.exp(size / 2)
    low = _i_near(order, part)
    high = polynomial(_BOUND / rest, far) / torch.sqrt(rest)
    found = torch.where(size < _BOUND, low / grown / grown if scaled else low, high if scaled else high * grown * grown)
    return torch.where(x < 0, -found, found) if order else found


def _i_near(order: int, x: Tensor) -> Tensor:
    found = polynomial((x / _BOUND) ** 2, _I[order][0])
    return found * x if order else found


def k(order: int, x: Tensor, scaled: bool) -> Tensor:
    """The modified Bessel function K of order 0 or 1; exp(x) K(x) if `scaled`. inf at 0, NaN below."""
    near, far = _K[order]
    part, rest = x.clamp(max=_K_BOUND), x.clamp(min=_K_BOUND)
    series, slope = polynomial((part / 2) ** 2, near), torch.log(part / 2) * _i_near(order, part)
    low = series / part + slope if order else series - slope
    high = polynomial(2 / rest, far) / torch.sqrt(rest)
    found = torch.where(
        x <= _K_BOUND, low * torch.exp(part) if scaled else low, high if scaled else high * torch.exp(-rest)
    )
    return torch.where(x == 0, math.inf, found)


def j(order: int, x: Tensor) -> Tensor:
    """The Bessel function J of order 0 or 1."""
    size = x.abs()
    low = polynomial(x * x - _WAVE_BOUND**2 / 2, _J_NEAR[order])
    found = torch.where(size < _WAVE_BOUND, low * size if order else low, _wave(order, size, 1 / size, 1))
    return torch.where(x < 0, -found, found) if order else found


def y(order: int, x: Tensor) -> Tensor:
    """The Bessel function Y of order 0 or 1. -inf at 0, NaN below."""
    square, share, over = x * x - _WAVE_BOUND**2 / 2, 2 / math.pi, 1 / x
    slope = polynomial(square, [share * term for term in _J_NEAR[order]])
    low = polynomial(square, _Y_NEAR[order]) + torch.log(x) * slope
    low = torch.where(x == 0, -math.inf, low * x - share * over) if order else low
    return torch.where(x < _WAVE_BOUND, low, _wave(order, x, over, 0))


def _wave(order: int, x: Tensor, over: Tensor, quarters: int) -> Tensor:
    """sqrt(2 / (pi x)) times a sine, whose phase is some quarters of a turn further; x >= 4.5, over: 1 / x."""
    height, ahead = _WAVES[order]
    over = over.clamp(0.0, 1 / _WAVE_BOUND)  # where it is not asked for: the sine of a large number is slow
    t = over * over
    phase = x + (polynomial(t, ahead) * over - math.pi * (1 / 4 + order / 2 - quarters / 2))
    return torch.sqrt(over * (2 / math.pi)) * polynomial(t, height) * torch.sin(phase)


def airy(x: Tensor) -> Tensor:
    """Airy's function Ai."""
    size = x.abs().clamp(min=_AIRY_BOUND)
    root = torch.sqrt(size)
    zeta, height = 2 / 3 * size * root, 1 / (math.sqrt(math.pi) * torch.sqrt(root))
    t = 2 / 3 * _AIRY_BOUND**1.5 / zeta
    right = height / 2 * torch.exp(-zeta) * polynomial(t, _AIRY_RIGHT)
    even, odd = (polynomial(t * t, one) for one in _AIRY_WAVE)
    left = height * (torch.sin(zeta + math.pi / 4) * even + torch.sin(zeta - math.pi / 4) * odd / zeta)
    middle = polynomial(x.clamp(-_AIRY_BOUND, _AIRY_BOUND) / _AIRY_BOUND, _AIRY_NEAR)
    return torch.where(x.abs() < _AIRY_BOUND, middle, torch.where(x < 0, left, right))


def _both_sides(n: int) -> Tensor:
    """From -24 to 24, 0 among them, and far from it."""
    return torch.cat((torch.linspace(-24, 24, 8 * n + 1), torch.tensor([40.0, -60.0])))


def _above(n: int) -> Tensor:
    """From 0 to 24, and far from it."""
    return torch.cat((torch.linspace(0, 24, 8 * n + 1), torch.tensor([40.0, 60.0])))


def _row(name: str, function: Callable[[Tensor], Tensor], tries: Callable[..., Tensor] = _both_sides) -> None:
    def computed(input: Tensor) -> Tensor:
        x = floats(input)
        wide = x.to(torch.float32) if function is not airy and x.dtype != torch.float64 else x.to(torch.float64)
        return function(wide).to(x.dtype)

    operator = name.replace(".", "_")
    bare = operator.removeprefix("special_")
    also = (f"prims::{bare}", f"prims::bessel_{bare}")
    op(name, why=missing(f"aten::{operator}", *also), tries=tries, to=computed)


_row("special.i0e", functools.partial(i, 0, scaled=True))
_row("special.modified_bessel_i0", functools.partial(i, 0, scaled=False))
_row("special.modified_bessel_k0", functools.partial(k, 0, scaled=False), _above)
_row("special.scaled_modified_bessel_k0", functools.partial(k, 0, scaled=True), _above)
_row("special.bessel_j0", functools.partial(j, 0))
_row("special.bessel_y0", functools.partial(y, 0), _above)
_row("i0", functools.partial(i, 0, scaled=False))
_row("special.i1e", functools.partial(i, 1, scaled=True))
_row("special.modified_bessel_i1", functools.partial(i, 1, scaled=False))
_row("special.modified_bessel_k1", functools.partial(k, 1, scaled=False), _above)
_row("special.scaled_modified_bessel_k1", functools.partial(k, 1, scaled=True), _above)
_row("special.bessel_j1", functools.partial(j, 1))
_row("special.bessel_y1", functools.partial(y, 1), _above)
_row("special.i1", functools.partial(i, 1, scaled=False))
_row("special.airy_ai", airy)
_row(
    "special.spherical_bessel_j0",
    lambda x: torch.where(x.abs() < 1e-4, 1 - x * x / 6, torch.sin(x) / torch.where(x == 0, torch.ones_like(x), x)),
)
