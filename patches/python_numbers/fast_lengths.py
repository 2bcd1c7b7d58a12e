"""scipy's next_fast_len of a size: the length to which convolutions by Fourier transforms are padded."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.symbolic import as_tensor, symbolic

# Longer transforms than this do not fit into memory; above it the graph stops with an index that is out of bounds.
_LONGEST = 2**24


class _Convolved(torch.nn.Module):
    """A row convolved with a kernel of its own length, by transforms of a fast length; and the other fast lengths."""

    def __init__(self) -> None:
        super().__init__()
        import scipy.fftpack  # noqa: F401  loaded before the patches look for it

        self.rate = torch.nn.Parameter(torch.rand(16, 1))

    def forward(self, x: Tensor) -> Tensor:
        from scipy.fft import next_fast_len as any_radix
        from scipy.fftpack import next_fast_len

        n = x.shape[1]
        length = next_fast_len(2 * n - 1)
        kernel = torch.exp(-self.rate * torch.arange(n))
        spectrum = torch.fft.rfft(x, length) * torch.fft.rfft(kernel, length)
        return torch.fft.irfft(spectrum, length)[:, :n] + any_radix(n) + any_radix(n, real=True)


@op(
    "scipy.fft.next_fast_len",
    "scipy.fftpack.next_fast_len",
    name="fast-lengths",
    why="a size becomes a constant: next_fast_len() of a shape freezes the traced value, or takes no symbolic size",
    reason="unhashable type: non-nested SymInt|shape",
    link="https://docs.scipy.org/doc/scipy/reference/generated/scipy.fft.next_fast_len.html",
    requires=("scipy",),
    tries=lambda n: torch.rand(16, n),
    sizes=(7, 22, 3, 1, 131),
    case=_Convolved,
    unchanged="fixed sizes",
    beside=("fft",),
)
def fast_lengths(original: Callable[..., object], target: Any, real: bool = False) -> object:
    """The first number of small prime factors that is no smaller than a size, found in a table of them."""
    if not symbolic(target):
        return NotImplemented
    # fftpack's own has no `real`, and is that of real transforms.
    radices = (2, 3, 5) if real or "fftpack" in original.__module__ else (2, 3, 5, 7, 11)
    table = torch.tensor(_smooth(radices))
    size = as_tensor(target, torch.int64)
    found = table[(table < size).sum()]
    if isinstance(target, Tensor):
        return found
    length = found.item()
    torch._check(length >= 1)
    torch._check(length >= target)
    return length


@functools.cache
def _smooth(radices: tuple[int, ...]) -> list[int]:
    """All numbers up to the longest that have no other prime factors, in order."""
    found = [1]
    for radix in radices:
        # Every number so far, times each power of the next factor.
        for number in found:
            if number * radix <= _LONGEST:
                found.append(number * radix)
    return sorted(found)
