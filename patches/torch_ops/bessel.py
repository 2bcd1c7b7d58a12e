"""Bessel functions and Airy's, of which ONNX has none."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import missing, op
from onnxpatch.formulas import bessel
from onnxpatch.formulas.elementary import floats


def _both_sides(n: int) -> Tensor:
    """From -24 to 24, 0 among them, and far from it."""
    return torch.cat((torch.linspace(-24, 24, 8 * n + 1), torch.tensor([40.0, -60.0])))


def _above(n: int) -> Tensor:
    """From 0 to 24, and far from it."""
    return torch.cat((torch.linspace(0, 24, 8 * n + 1), torch.tensor([40.0, 60.0])))


def _row(
    names: tuple[str, ...], function: Callable[[Tensor], Tensor], tries: Callable[..., Tensor] = _both_sides
) -> None:
    def computed(input: Tensor) -> Tensor:
        x = floats(input)
        return function(x.to(torch.float64)).to(x.dtype)

    operator = names[0].replace(".", "_")
    bare = operator.removeprefix("special_")
    also = (f"prims::{bare}", f"prims::bessel_{bare}")
    op(*names, why=missing(f"aten::{operator}", *also), tries=tries, to=computed)


for _order in (0, 1):
    _i, _k = (functools.partial(one, _order) for one in (bessel.i, bessel.k))
    _row((f"special.i{_order}e",), functools.partial(_i, scaled=True))
    _row((f"special.modified_bessel_i{_order}",), functools.partial(_i, scaled=False))
    _row((f"special.modified_bessel_k{_order}",), functools.partial(_k, scaled=False), _above)
    _row((f"special.scaled_modified_bessel_k{_order}",), functools.partial(_k, scaled=True), _above)
    _row((f"special.bessel_j{_order}",), functools.partial(bessel.j, _order))
    _row((f"special.bessel_y{_order}",), functools.partial(bessel.y, _order), _above)
_row(("i0",), functools.partial(bessel.i, 0, scaled=False))
_row(("special.i1",), functools.partial(bessel.i, 1, scaled=False))
_row(("special.airy_ai",), bessel.airy)
_row(
    ("special.spherical_bessel_j0",),
    lambda x: torch.where(x.abs() < 1e-4, 1 - x * x / 6, torch.sin(x) / torch.where(x == 0, torch.ones_like(x), x)),
)
