"""Fourier transforms of half of a signal that is symmetric: hfft, ihfft and those of several axes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import missing, op

_SWAPPED = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}
_NAMES = ("hfft", "hfft2", "hfftn", "ihfft", "ihfft2", "ihfftn")


def _spectra(x: Tensor) -> tuple[Tensor, ...]:
    f = torch.fft
    whole = f.hfft(x, dim=1), f.hfftn(x, (6, 8), (1, 2), "ortho"), f.hfft2(x)
    half = f.ihfft(x, dim=1), f.ihfft2(x, norm="forward")
    return *whole, *(torch.stack((one.real, one.imag), -1) for one in half)


@op(
    *(f"torch.fft.{name}" for name in _NAMES),
    name="hermitian-spectra",
    case=_spectra,
    beside=("fft", "complex-numbers"),
    why=missing(*(f"aten::fft_{name}" for name in _NAMES), exporters=("trace",)),
    reason="fft_i?hfft|conjugate bit",
    tries=lambda b, h, w: torch.randn(b, h + 3, w + 3),
)
def hermitian(
    original: Callable[..., Any],
    input: Tensor,
    s: Any = None,
    dim: Any = None,
    norm: str | None = None,
    *,
    n: Any = None,
) -> Any:
    """irfft of the conjugate, and the conjugate of rfft, without and with the factor that these have the other way."""
    name = original.__name__.removeprefix("fft_")
    rank = {"t": 1, "2": 2, "n": None}[name[-1]]
    s = s if n is None else n
    s = (s,) if isinstance(s, int) else s
    if dim is None:
        count = rank if rank is not None else input.dim() if s is None else len(s)
        dim = tuple(range(-count, 0))
    axes = (dim,) if isinstance(dim, int) else tuple(dim)
    sizes = [None] * len(axes) if s is None else list(s)
    last = functools.partial(_last, sizes[-1], axes[-1], norm, name.startswith("i"))
    x = last(input) if name.startswith("i") else input
    other = torch.fft.ifft if name.startswith("i") else torch.fft.fft
    for axis, size in zip(axes[:-1], sizes[:-1], strict=True):
        x = other(x, size, axis, norm)
    return x if name.startswith("i") else last(x)


def _last(size: Any, axis: int, norm: str | None, inverse: bool, x: Tensor) -> Tensor:
    if inverse:
        return torch.conj(torch.fft.rfft(x, size, axis, _SWAPPED[norm]))
    return torch.fft.irfft(torch.conj(x), size, axis, _SWAPPED[norm])
