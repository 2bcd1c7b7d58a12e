"""Short-time Fourier transforms as convolutions with the window folded into their kernels; windows by their formulas.

A window may be of any length, also one that is computed from sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from onnxpatch import RefusedError, missing, op
from onnxpatch.formulas import fourier
from onnxpatch.formulas.complex_pairs import Pair
from onnxpatch.formulas.symbolic import known_size


def _waves(points: int, terms: int) -> np.ndarray:
    """(2 terms, points): the cosines, then the negative sines, of the first `terms` frequencies."""
    return np.concatenate(fourier.waves(terms, points, points))


def _window(window: Tensor | None, length: int, points: int, like: Tensor) -> Tensor:
    """The window over `points` samples: ones if none is given; a shorter one is padded on both sides."""
    window = torch.ones(length, dtype=like.dtype, device=like.device) if window is None else window.to(like)
    before = (points - length) // 2
    return F.pad(window, (before, points - length - before))


def _sizes(n_fft: object, hop_length: object, win_length: object) -> tuple[int, int, int]:
    """(points, hop, window length) with torch's defaults. All must be static."""
    # Such as `2 * spectrum.shape[1] - 2`, which is the same for all inputs.
    points = known_size(n_fft)
    hop = points // 4 if hop_length is None else known_size(hop_length)
    length = points if win_length is None else known_size(win_length)
    if not all(isinstance(size, int) for size in (points, hop, length)):
        raise RefusedError("stft with n_fft, hop_length or win_length computed from an input size: make them constants")
    return points, hop, length


class _Spectrogram(torch.nn.Module):
    """Changes magnitude and phase and transforms back, as vocoders do."""

    window: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(16))
        self.gain = torch.nn.Parameter(torch.rand(17, 1) + 0.5)

    def forward(self, sound: Tensor) -> tuple[Tensor, ...]:
        spectrum = torch.stft(sound, 32, 8, 16, self.window, normalized=True, return_complex=True)
        magnitude, phase = spectrum.abs() * self.gain, spectrum.angle()
        changed = magnitude * torch.exp(1j * phase)
        whole = torch.cat((changed, changed[..., :15, :]), -2)  # no signal has such a second half
        whole = torch.istft(whole, 32, 8, 16, self.window, onesided=False)
        return magnitude, torch.istft(changed, 32, 8, 16, self.window, normalized=True), whole


@op(
    "stft",
    "istft",
    why="STFT does not currently support complex types; Exporting the operator 'aten::istft' to ONNX is not supported",
    reason="complex|aten::istft|aten::stft",
    link="https://github.com/gemelo-ai/vocos/issues/38",
    # 97 samples are no whole number of hops.
    tries=lambda b, n: torch.randn(b, n),
    sizes=((2, 160), (1, 200), (3, 97)),
    case=_Spectrogram,
    # abs(), angle() and exp(1j * phase) of the spectrum are that patch's.
    beside=("complex-numbers",),
)
def stft(original: Callable[..., Tensor], input: Any, **given: Any) -> object:
    """torch.stft and torch.istft."""
    transform = istft if "istft" in original.__name__ else forward
    return transform(input, **given)


def forward(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:
    """(samples,) or (batch, samples) to (..., frequencies, frames), complex, or with a last axis of 2."""
    if align_to_window:
        raise RefusedError("stft with align_to_window=True has no ONNX form here: pad the signal, and leave it out")
    points, hop, length = _sizes(n_fft, hop_length, win_length)
    if isinstance(input, Pair):
        raise RefusedError("stft of a complex signal has no ONNX form here: transform real and imaginary part, and add")
    terms = points if onesided is False else points // 2 + 1
    signal = input.unsqueeze(0) if input.dim() == 1 else input
    signal = signal.unsqueeze(1)
    if center:
        signal = F.pad(signal, (points // 2, points // 2), mode=pad_mode)
    # Both parts in one convolution, whose stride is the hop.
    kernel = torch.from_numpy(_waves(points, terms)).to(signal) * _window(window, length, points, signal)
    both = F.conv1d(signal, kernel.reshape(2 * terms, 1, points), stride=hop)
    if normalized:
        both = both * points**-0.5
    if input.dim() == 1:
        both = both.squeeze(0)
    pair = Pair(both.narrow(-2, 0, terms), both.narrow(-2, terms, terms))
    return torch.stack((pair.real, pair.imag), -1) if return_complex is False else pair


def istft(
    input: object,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """(..., frequencies, frames), complex, to (..., samples); the sum of overlapping windows is divided out."""
    if return_complex:
        raise RefusedError("istft with return_complex=True has no ONNX form here: give the spectrum of a real signal")
    points, hop, window_length = _sizes(n_fft, hop_length, win_length)
    spectrum = Pair.of(input)
    alone = spectrum.real.dim() == 2
    terms = points // 2 + 1  # eager does not look at the other half of a whole spectrum
    parts = spectrum.real, spectrum.imag
    both = torch.cat(parts if onesided is not False else [x.narrow(-2, 0, terms) for x in parts], -2)
    both = both.unsqueeze(0) if alone else both
    shape = _window(window, window_length, points, both)
    kernel = torch.from_numpy(_waves(points, terms) * _weights(points, terms)).to(both) * shape
    # Overlapping frames are added up by the transposed convolution.
    signal = F.conv_transpose1d(both, kernel.reshape(2 * terms, 1, points), stride=hop)
    # The sum of squared windows at each sample, by the same overlap-add.
    frames = torch.ones_like(both.narrow(-2, 0, 1).narrow(0, 0, 1))
    weight = F.conv_transpose1d(frames, (shape * shape).reshape(1, 1, points), stride=hop)
    signal = _cut(signal, weight, points, center, length).squeeze(1)
    if normalized:
        signal = signal * points**0.5
    return signal.squeeze(0) if alone else signal


def _weights(points: int, terms: int) -> np.ndarray:
    """(2 terms, 1): every term counts twice, for its conjugate, but the real ones."""
    weight = np.full(terms, 2.0)
    weight[0] = 1.0
    # Of an even number of points the last term, the Nyquist frequency, has no conjugate either.
    if points % 2 == 0:
        weight[-1] = 1.0
    return (np.concatenate((weight, weight))[:, None] / points).astype("float32")


def _cut(signal: Tensor, weight: Tensor, points: int, center: bool, length: int | None) -> Tensor:
    start = points // 2 if center else 0
    if length is not None:
        # As many zeros as are asked for, since it is not known how many are missing; their weight is 1, not 0 / 0.
        missing = F.pad(signal, (0, length)), F.pad(weight, (0, length), value=1.0)
        return (missing[0] / missing[1]).narrow(-1, start, length)
    stop = -(points // 2) if center else None
    return signal[..., start:stop] / weight[..., start:stop]


# ------------------------------------------------------------------ windows
def _hamming(t: Tensor, alpha: float = 0.54, beta: float = 0.46) -> Tensor:
    return alpha - beta * torch.cos(2 * math.pi * t)


def _blackman(t: Tensor) -> Tensor:
    return 0.42 - 0.5 * torch.cos(2 * math.pi * t) + 0.08 * torch.cos(4 * math.pi * t)


def _kaiser(t: Tensor, beta: float = 12.0) -> Tensor:
    return torch.special.i0(beta * torch.sqrt(1 - (2 * t - 1) ** 2)) / torch.special.i0(torch.full_like(t, beta))


_SHAPES: dict[str, Callable[..., Tensor]] = {
    "hann_window": lambda t: _hamming(t, 0.5, 0.5),
    "hamming_window": _hamming,
    "blackman_window": _blackman,
    "bartlett_window": lambda t: 1 - (2 * t - 1).abs(),
    "kaiser_window": _kaiser,
}
"""Each by its positions from 0 to 1, and by its own numbers."""


def _windowed(x: Tensor) -> Tensor:
    n = x.shape[1]
    windows = [getattr(torch, name) for name in _SHAPES]
    return torch.stack([x * (w(n) + w(n, periodic=False) + w(6).max() + w(1)) for w in windows])


@op(
    *_SHAPES,
    name="spectrum-windows",
    reason=r"aten(::|\.)\w+_window|static shape",
    why=missing(*(f"aten::{name}" for name in _SHAPES)),
    # A length of 1 as well, for which eager has 1 whatever the formula says.
    tries=lambda b, n: torch.randn(b, n),
    sizes=((2, 8), (3, 5), (1, 2), (2, 1)),
    case=_windowed,
    beside=("i0",),
)
def window(original: Any, window_length: Any, periodic: bool = True, *numbers: Any, **kwargs: Any) -> Tensor:
    """Computes the window from `arange`, so that its length may be dynamic."""
    made = {key: kwargs.pop(key, None) for key in ("dtype", "device", "layout", "requires_grad", "pin_memory")}
    dtype = made["dtype"] or torch.get_default_dtype()
    ticks = torch.arange(window_length, device=made["device"])
    # Counted in the graph: a Python number would fix the length at the example's.
    count = torch.ones_like(ticks).sum()
    steps = (count if periodic else count - 1).clamp(min=1)
    shape = _SHAPES[original.__name__](ticks.to(dtype) / steps.to(dtype), *numbers, **kwargs)
    return torch.where(count == 1, torch.ones_like(shape), shape)
