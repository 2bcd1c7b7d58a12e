"""Discrete Fourier transforms; spectra are pairs of real tensors.

A transform of n points is `x @ W` with `W[j, k] = exp(-2 pi i j k / n)`. The matrices of a static size become
constants; those of a dynamic size are computed in the graph. Long axes are transformed by `formulas.fourier`, whose
time and memory do not grow with n * n.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import RefusedError, exporting, missing, op
from onnxpatch.formulas import fourier
from onnxpatch.formulas.complex_pairs import Pair
from onnxpatch.formulas.elementary import floats
from onnxpatch.formulas.symbolic import counted, known_size, symbolic
from onnxpatch.patching.proof import numbers

Matrices = tuple[torch.Tensor, torch.Tensor]


def dft_matrices(rows: Any, columns: Any, points: object, like: torch.Tensor, sign: int) -> Matrices:
    """Real and imaginary part of exp(sign 2 pi i j k / points), for j < rows and k < columns."""
    if all(isinstance(size, int) for size in (rows, columns, points)):
        found = fourier.waves(rows, columns, points, sign)
        return tuple(torch.from_numpy(part).to(like) for part in found)  # type: ignore[return-value]
    total = counted(points, like)
    steps = torch.arange(rows, device=like.device)[:, None] * torch.arange(columns, device=like.device)
    # Reduced to one turn while the numbers are whole: a large angle in float32 has no digits left.
    angles = (steps % total).to(like.dtype) * (sign * 2 * math.pi) / total.to(like.dtype)
    return torch.cos(angles), torch.sin(angles)


def forward_1d(x: Any, size: Any, dim: int, sign: int, half: bool) -> Pair:
    """Unscaled transform along `dim`, of the first `size` entries (padded with zeros). half: size // 2 + 1 terms."""
    like = x.real if isinstance(x, Pair) else x
    length = known_size(size if size is not None else like.shape[dim])
    real, imag = _last(like, size, dim), _last(x.imag, size, dim) if isinstance(x, Pair) else None
    if fourier.is_long(length, like.dtype):
        if sign > 0 and imag is not None:  # conj(F(conj(x)))
            imag = -imag
        a, b = fourier.transform(real, imag, length, "half" if half else "all")
        return Pair(a.transpose(dim, -1), (-b if sign > 0 else b).transpose(dim, -1))
    cos, sin = dft_matrices(length, length // 2 + 1 if half else length, length, like, sign)
    back = lambda part: part.transpose(dim, -1)  # noqa: E731
    if imag is None:
        return Pair(back(real @ cos), back(real @ sin))
    return Pair(back(real @ cos - imag @ sin), back(imag @ cos + real @ sin))


def _last(part: torch.Tensor, size: Any, dim: int) -> torch.Tensor:
    """A part cut or padded with zeros to `size` entries along `dim`, which becomes the last axis."""
    if size is not None:
        size, present = known_size(size), known_size(part.shape[dim])
        if not (isinstance(size, int) and isinstance(present, int) and present >= size):
            part = _padded(part, size, dim)
        elif present > size:
            part = part.narrow(dim, 0, size)
    return part.transpose(dim, -1)


def inverse_real_1d(x: Pair, size: object, dim: int) -> torch.Tensor:
    """Unscaled real inverse of a half spectrum along `dim`, of `size` points (2 (terms - 1) when None)."""
    points = known_size(size) if size is not None else 2 * (known_size(x.real.shape[dim]) - 1)
    terms = points // 2 + 1
    order = torch.arange(terms, device=x.real.device)
    # Every term counts twice, for its conjugate, but the first, and for an even number of points the last.
    alone = (order == 0) | (order * 2 == counted(points, x.real))
    weight = torch.where(alone, 1.0, 2.0).to(x.real)
    real, imag = (_last(part, terms if size is not None else None, dim) for part in (x.real, x.imag))
    if fourier.is_long(points, real.dtype):  # the real part of F(conj(x)), with zeros for the other half
        both = real * weight, -imag * weight
        if isinstance(points, int):
            both = _padded(both[0], points, -1), _padded(both[1], points, -1)
        return fourier.transform(*both, points, "real")[0].transpose(dim, -1)
    cos, sin = (part * weight[:, None] for part in dft_matrices(terms, points, points, x.real, 1))
    return (real @ cos - imag @ sin).transpose(dim, -1)


def _padded(x: torch.Tensor, size: Any, dim: int) -> torch.Tensor:
    shape = [size if axis == dim % x.dim() else length for axis, length in enumerate(x.shape)]
    return torch.cat((x, x.new_zeros(shape)), dim).narrow(dim, 0, size)


def normalized(x: Any, sizes: list[Any], norm: str | None, inverse: bool) -> object:
    """`x` with the factor that `norm` gives this direction: 1, 1 / n or 1 / sqrt(n)."""
    norm = norm or "backward"
    if norm not in ("backward", "forward", "ortho"):
        raise RuntimeError(f"Invalid normalization mode: {norm!r}")
    if norm == ("forward" if inverse else "backward"):
        return x
    like = x.real if isinstance(x, Pair) else x
    total = functools.reduce(lambda a, b: a * b, (counted(n, like) for n in sizes)).to(like.dtype)
    return x / (torch.sqrt(total) if norm == "ortho" else total)


def _axes(name: str, x: Any, s: Any, dim: Any) -> tuple[list[int], list[Any]]:
    """(dimensions, requested sizes or None) of torch.fft.<name>, which has 2 or n at its end for several dimensions."""
    s = s if s is None or isinstance(s, tuple | list) else [s]
    if dim is None:
        # As torch: as many of the last axes as sizes are given, or those that the name says; for n, all.
        wanted = {"2": 2, "n": x.dim()}.get(name[-1], 1) if s is None else len(s)
        dim = range(-wanted, 0)
    dims = [dim] if isinstance(dim, int) else [*dim]
    return dims, [None] * len(dims) if s is None else [None if n == -1 else n for n in s]


def torch_fft(name: str, x: Any, s: object, dim: object, norm: str | None) -> Any:
    """torch.fft.<name>. name: (i)(r)fft, with 2 or n at the end for several dimensions."""
    kind = name.removesuffix("2").removesuffix("n")
    if kind not in ("fft", "ifft", "rfft", "irfft"):
        raise RefusedError(f"torch.fft.{name} has no ONNX form here: use fft, ifft, rfft or irfft (also 2 or n)")
    x = Pair.of(x) if isinstance(x, Pair) or x.is_complex() else floats(x)
    dims, sizes = _axes(name, x, s, dim)
    inverse = kind.startswith("i")
    points = [n if n is not None else x.shape[d] for d, n in zip(dims, sizes, strict=True)]
    if kind == "irfft":
        points[-1] = sizes[-1] if sizes[-1] is not None else 2 * (x.shape[dims[-1]] - 1)
        x = Pair.of(x)
        # The axis with half the terms comes last: the result is real after it.
        for d, n in zip(dims[:-1], sizes[:-1], strict=True):
            x = forward_1d(x, n, d, 1, False)
        return normalized(inverse_real_1d(x, sizes[-1], dims[-1]), points, norm, inverse)
    # The input is real only before the first transform, and the last axis is the one that is halved.
    if kind == "rfft":
        x = forward_1d(x, sizes[-1], dims[-1], -1, True)
        dims, sizes = dims[:-1], sizes[:-1]
    # Transforms along different axes commute.
    for d, n in zip(dims, sizes, strict=True):
        x = forward_1d(x, n, d, 1 if inverse else -1, False)
    return normalized(x, points, norm, inverse)


class _Spectrum(torch.nn.Module):
    """A filter in the frequency domain, as in global filter networks, and a transform over a static axis."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(1, 1, 1, 2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        half = torch.fft.rfft2(x, dim=(1, 2), norm="ortho") * torch.view_as_complex(self.weight)
        return torch.fft.irfft2(half, s=x.shape[1:], dim=(1, 2), norm="ortho"), torch.fft.fft(x, dim=0).abs()


NAMES = ("fft", "ifft", "rfft", "irfft", "fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")


@op(
    *(f"torch.fft.{name}" for name in NAMES),
    name="fft",
    why="Exporting the operator 'aten::fft_rfft2' to ONNX is not supported: Fourier transforms and complex spectra",
    reason="aten::fft_rfft2",
    link="https://github.com/pytorch/pytorch/issues/107588",
    fails=("trace",),  # dynamo is right without it, and must stay so
    # Odd sizes too: their half spectrum has no real term at its end.
    tries=lambda h, w: torch.randn(2, h, w),
    sizes=((8, 10), (13, 15), (6, 7)),
    case=_Spectrum,
)
def fft(
    original: Callable[..., torch.Tensor],
    input: object,
    s: object = None,
    dim: object = None,
    norm: str | None = None,
    *,
    n: object = None,
) -> object:
    """torch.fft's transforms over one, two or all dimensions, of real or complex input."""
    # One-dimensional transforms call it n, the others s.
    return torch_fft(original.__name__.removeprefix("fft_"), input, s if n is None else n, dim, norm)


_SWAPPED = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}
_NAMES = ("hfft", "hfft2", "hfftn", "ihfft", "ihfft2", "ihfftn")


def _spectra(x: Tensor) -> tuple[Tensor, ...]:
    half = torch.fft.ihfft(x, dim=0, norm="forward")
    return torch.fft.hfftn(x, (6, 8), (0, 1), "ortho"), torch.stack((half.real, half.imag), -1)


@op(
    *(f"torch.fft.{name}" for name in _NAMES),
    name="hermitian-spectra",
    case=_spectra,
    beside=("fft", "complex-numbers"),
    why=missing(*(f"aten::fft_{name}" for name in _NAMES)),
    reason="fft_i?hfft|conjugate bit|conj_physical|constant_pad_nd|static shape",
    tries=lambda h, w: torch.randn(h + 3, w + 3),
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
    axes, sizes = _axes(name, input, s if n is None else n, dim)
    last = functools.partial(_along_last, sizes[-1], axes[-1], norm, name.startswith("i"))
    x = last(input) if name.startswith("i") else input
    other = torch.fft.ifft if name.startswith("i") else torch.fft.fft
    for axis, size in zip(axes[:-1], sizes[:-1], strict=True):
        x = other(x, size, axis, norm)
    return x if name.startswith("i") else last(x)


def _along_last(size: Any, axis: int, norm: str | None, inverse: bool, x: Tensor) -> Tensor:
    if inverse:
        return torch.conj(torch.fft.rfft(x, size, axis, _SWAPPED[norm]))
    return torch.fft.irfft(torch.conj(x), size, axis, _SWAPPED[norm])


_NO_SHIFT = "aten::fft_fftshift and aten::fft_ifftshift are not supported by trace; Unsupported attribute type: list"


def _both(shift: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    return lambda x: (shift(x), shift(x, -1))


def _shifted(x: Tensor, dim: Any, ahead: int) -> Tensor:
    axes = range(x.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    for axis in axes:
        half = (x.shape[axis] + ahead) // 2
        x = torch.cat((x.narrow(axis, half, x.shape[axis] - half), x.narrow(axis, 0, half)), axis)
    return x


@op("fft.fftshift", why=_NO_SHIFT, reason="fftshift|attribute type", tries=numbers, case=_both(torch.fft.fftshift))
def fftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The second half first; the middle of an odd axis goes with the first half."""
    return _shifted(input, dim, 1)


@op("fft.ifftshift", why=_NO_SHIFT, reason="fftshift|attribute type", tries=numbers, case=_both(torch.fft.ifftshift))
def ifftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The second half first; the middle of an odd axis goes with the second half."""
    return _shifted(input, dim, 0)


@op(
    "fft.fftfreq",
    "fft.rfftfreq",
    name="frequencies",
    why=missing("aten::fft_rfftfreq", "aten::fft_fftfreq"),
    reason="fftfreq|inferred a static shape",
    tries=lambda n: torch.randn(n),
    sizes=(6, 9, 1, 12),
    case=lambda x: (x * torch.fft.fftfreq(x.shape[0], 0.5), torch.fft.rfftfreq(x.shape[0]), torch.fft.rfftfreq(9)),
)
def frequencies(original: Callable[..., Tensor], n: Any, d: Any = 1.0, **made: Any) -> Tensor:
    """The frequencies of a transform of n points, those above the half of them negative."""
    if not symbolic(n) and exporting() == "trace":
        return NotImplemented
    dtype = made.get("dtype") or torch.get_default_dtype()
    places = torch.arange(n, device=made.get("device"))
    size = torch.ones_like(places).sum()
    if "rfftfreq" in original.__name__:
        count: Any = torch.div(size, 2, rounding_mode="floor") + 1
        places = torch.arange(count, device=made.get("device"))
    else:
        places = torch.where(places * 2 >= size, places - size, places)
    return places.to(dtype) / (size.to(dtype) * d)
