"""The primitives of `benchmarks.primitives`: functions whose stand-in could cost more than they do as they grow."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SIZES = (1_000, 10_000, 100_000)


@dataclasses.dataclass(frozen=True)
class Primitive:
    """inputs: arguments of n elements in and out together, or nearly. example: n of what is exported."""

    name: str
    call: Callable[..., Any]
    inputs: Callable[[int], tuple[Tensor, ...]]
    dynamic: tuple[dict[int, str] | None, ...]
    example: int = 60

    def build(self) -> nn.Module:
        return _ARITIES[len(self.dynamic)](self.call)

    def arguments(self, n: int) -> tuple[Tensor, ...]:
        """The same ones every time."""
        torch.manual_seed(0)
        return self.inputs(n)


class _One(nn.Module):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, x: Tensor) -> Any:
        return self.call(x)


class _Two(_One):
    def forward(self, x: Tensor, y: Tensor) -> Any:  # type: ignore[override]
        return self.call(x, y)


class _Three(_One):
    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Any:  # type: ignore[override]
        return self.call(x, y, z)


_ARITIES = {1: _One, 2: _Two, 3: _Three}


def _row(n: int) -> tuple[Tensor]:
    return (torch.randn(1, n),)


def _matrix(n: int) -> tuple[Tensor]:
    return (torch.randn(max(1, n // 64), 64),)


def _image(n: int) -> tuple[Tensor]:
    side = math.isqrt(max(4, n // 3))
    return (torch.randn(1, 3, side, side),)


def _searched(n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n).sort()[0], torch.randn(n)


def _counted(n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 2), torch.arange(n) % 3


def _pairs(n: int) -> tuple[Tensor, Tensor]:
    rows = math.isqrt(n)
    return torch.randn(rows, 16), torch.randn(rows, 16)


def _scattered(n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n), torch.randint(0, 16, (n,))


def _members(n: int) -> tuple[Tensor, Tensor]:
    return torch.randint(0, n, (n,)), torch.randint(0, n, (n,))


def _thousands(n: int) -> tuple[Tensor]:
    return (torch.randn(n // 1000, 1000),)


def _spectra(n: int) -> tuple[Tensor]:
    return (torch.randn(n // 1000, 501, 2),)


def _cameras(n: int) -> tuple[Tensor]:
    return (torch.randn(n // 9, 3, 3) + 3 * torch.eye(3),)


def _warped(n: int) -> tuple[Tensor, Tensor]:
    return *_image(n), torch.randn(1, 2, 3)


def _root(n: int) -> tuple[Tensor]:
    return (torch.randn(1, math.isqrt(n)),)


def _eight(n: int) -> tuple[Tensor]:
    return (torch.randn(8, n // 8),)


def _grid(x: Tensor, theta: Tensor) -> Tensor:
    return F.affine_grid(theta, list(x.shape), align_corners=False)


def _stft(x: Tensor) -> Tensor:
    return torch.stft(x, 256, 64, window=torch.ones(256), return_complex=False)


def _resize(size: int, mode: str, antialias: bool = False) -> Callable[[Tensor], Tensor]:
    return lambda x: F.interpolate(x, (size, size), mode=mode, antialias=antialias)


_ROW, _ROWS, _IMAGE = ({1: "n"},), ({0: "n"},), ({2: "h", 3: "w"},)
_BOTH = ({0: "n"}, {0: "m"})
_SAME = ({0: "n"}, {0: "n"})
_BINS = torch.linspace(-2, 2, 256)

CASES = [
    Primitive("searchsorted", torch.searchsorted, _searched, _BOTH),
    Primitive("bucketize, 256 bins", lambda x: torch.bucketize(x, _BINS), _row, _ROW),
    Primitive("isin", torch.isin, _members, _BOTH),
    Primitive("repeat_interleave by counts", lambda x, c: x.repeat_interleave(c, 0), _counted, _SAME),
    Primitive("cumprod", lambda x: torch.cumprod(1 + x / 100, 1), _row, _ROW),
    Primitive("logcumsumexp", lambda x: torch.logcumsumexp(x, 1), _row, _ROW),
    Primitive("logcumsumexp, wide", lambda x: torch.logcumsumexp(100 * x, 1), _row, _ROW),
    Primitive("median", lambda x: torch.median(x, 1).values, _row, _ROW),
    Primitive("kthvalue", lambda x: torch.kthvalue(x, 5, 1).values, _row, _ROW),
    Primitive("quantile", lambda x: torch.quantile(x, 0.3, 1), _row, _ROW),
    Primitive("sort, stable", lambda x: torch.sort(x, dim=1, stable=True)[0], _row, _ROW),
    Primitive("cdist, p = 2", torch.cdist, _pairs, _BOTH, 900),
    Primitive("cdist, p = 1", lambda x, y: torch.cdist(x, y, 1), _pairs, _BOTH, 900),
    Primitive("rfft, dynamic n", lambda x: torch.view_as_real(torch.fft.rfft(x)), _row, _ROW),
    Primitive("rfft, n = 1,000", lambda x: torch.view_as_real(torch.fft.rfft(x)), _thousands, _ROWS, 2000),
    Primitive("irfft, n = 1,000", lambda x: torch.fft.irfft(torch.view_as_complex(x)), _spectra, _ROWS, 2000),
    Primitive("stft, 256 points", lambda x: _stft(x), _row, _ROW, 400),
    Primitive("adaptive_max_pool2d to 7", lambda x: F.adaptive_max_pool2d(x, 7), _image, _IMAGE, 900),
    Primitive("adaptive_avg_pool2d to 7", lambda x: F.adaptive_avg_pool2d(x, 7), _image, _IMAGE, 900),
    Primitive("bilinear antialiased to 64", _resize(64, "bilinear", True), _image, _IMAGE, 900),
    Primitive("bicubic antialiased to 64", _resize(64, "bicubic", True), _image, _IMAGE, 900),
    Primitive("nearest to 50", _resize(50, "nearest"), _image, _IMAGE, 900),
    Primitive("scatter_reduce mean", lambda x, i: torch.zeros(16).scatter_reduce(0, i, x, "mean"), _scattered, _SAME),
    Primitive("index_add", lambda x, i: torch.zeros(16).index_add(0, i, x), _scattered, _SAME),
    Primitive("cumsum of bools", lambda x: torch.cumsum(x > 0, 1), _row, _ROW),
    Primitive("diff", lambda x: torch.diff(x, dim=1), _row, _ROW),
    Primitive("unfold 16, 4", lambda x: x.unfold(1, 16, 4), _row, _ROW),
    Primitive("diag_embed", lambda x: torch.diag_embed(x), _root, _ROW, 900),
    Primitive("kron with 2 x 2", lambda x: torch.kron(x, torch.ones(2, 2)), _matrix, _ROWS, 640),
    Primitive("corrcoef of 8 rows", torch.corrcoef, _eight, _ROW, 400),
    Primitive("inverse of 3 x 3", torch.inverse, _cameras, _ROWS),
    Primitive("affine_grid", _grid, _warped, (*_IMAGE, None), 900),
    Primitive("rms_norm", lambda x: F.rms_norm(x, (64,)), _matrix, _ROWS, 640),
    Primitive("instance_norm", F.instance_norm, _image, _IMAGE, 900),
]  # fmt: skip
