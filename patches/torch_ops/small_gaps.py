"""Arguments and functions that the exporters pass over or lack: softplus beyond its threshold, shifts, running sums."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import missing, op
from onnxpatch.formulas.elementary import softplus
from onnxpatch.formulas.tries import numbers, pairs

_lacking = functools.partial(missing, exporters=("trace",))


@op(
    "nn.functional.softplus",
    why="relative error 0.002: the threshold is left out, beyond which softplus is x",
    reason="relative error",
    exporters=("trace",),
    tries=numbers,
    case=lambda x: functional.softplus(x, 3, 0.2),
)
def thresholded_softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """log(1 + exp(beta x)) / beta; x where beta x is above the threshold."""
    if threshold >= 20:
        return NotImplemented  # no difference in float32
    scaled = input * beta
    return torch.where(scaled > threshold, input, softplus(scaled) / beta)


_divided = functools.partial(functional.avg_pool2d, divisor_override=2)


@op(
    "nn.functional.avg_pool2d",
    name="average-by-divisor",
    why="relative error 0.8: divisor_override is left out",
    reason="relative error",
    tries=lambda b, h, w: torch.randn(b, 2, h + 3, w + 3),
    case=lambda x: (_divided(x, 3, 1, 1), _divided(x, 3, 2, 0, True), _divided(x, (3, 2), (2, 3), (1, 0), True)),
    unchanged=lambda x: functional.avg_pool2d(x, 3, 1, 1),
)
def average_by_divisor(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The sum of each window by `divisor_override`."""
    if divisor_override is None:
        return NotImplemented
    windows, steps, pads = (
        (one, one) if isinstance(one, int) else (tuple(one) * 2)[:2]
        for one in (kernel_size, kernel_size if stride is None or stride == () else stride, padding)
    )
    x = functional.pad(input, (pads[1], pads[1], pads[0], pads[0])) if any(pads) else input
    sizes = []
    for axis, (window, step, pad) in enumerate(zip(windows, steps, pads, strict=True)):
        size = x.shape[axis - 2]
        sizes.append((size - window + step - 1) // step + 1)
        # A window must begin in the map or in the padding before it.
        most = (size - pad - 1) // step + 1
        sizes[-1] = torch.minimum(*(torch.as_tensor(n) for n in (sizes[-1], most)))
    if not ceil_mode:
        return functional.avg_pool2d(x, windows, steps) * (windows[0] * windows[1] / divisor_override)
    found = functional.avg_pool2d(functional.pad(x, (0, steps[1] - 1, 0, steps[0] - 1)), windows, steps)
    found = found[..., : sizes[0], : sizes[1]]
    return found * (windows[0] * windows[1] / divisor_override)


def _both(shift: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    return lambda x: (shift(x), shift(x, -1))


def _shifted(x: Tensor, dim: Any, ahead: int) -> Tensor:
    if x.is_complex():
        return NotImplemented
    axes = range(x.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    for axis in axes:
        size = x.shape[axis]
        places = torch.arange(size, device=x.device)
        half = torch.div(torch.ones_like(places).sum() + ahead, 2, rounding_mode="floor")
        x = x.index_select(axis, torch.remainder(places + half, torch.ones_like(places).sum()))
    return x


@op("fft.fftshift", why=_lacking("aten::fft_fftshift"), tries=numbers, case=_both(torch.fft.fftshift))
def fftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The second half first; the middle of an odd axis goes with the first half."""
    return _shifted(input, dim, 1)


@op("fft.ifftshift", why=_lacking("aten::fft_ifftshift"), tries=numbers, case=_both(torch.fft.ifftshift))
def ifftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The second half first; the middle of an odd axis goes with the second half."""
    return _shifted(input, dim, 0)


@op(
    "cumulative_trapezoid",
    why=_lacking("aten::cumulative_trapezoid"),
    tries=pairs,
    case=lambda y, x: torch.cat((torch.cumulative_trapezoid(y, x), torch.cumulative_trapezoid(y, dx=0.5, dim=-1))),
    sizes=((2, 5), (3, 9), (1, 4)),
)
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1, dim: int = -1) -> Tensor:
    """The areas under a line through the points, up to each."""
    heights = _of_neighbours(y, dim, torch.add) / 2
    return torch.cumsum(heights * (dx if x is None else _of_neighbours(x, -1 if x.dim() == 1 else dim, torch.sub)), dim)


def _of_neighbours(x: Tensor, dim: int, function: Callable[..., Tensor]) -> Tensor:
    rest = x.shape[dim] - 1
    return function(x.narrow(dim, 1, rest), x.narrow(dim, 0, rest))
