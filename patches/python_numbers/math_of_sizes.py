"""Functions of math, numpy, scipy and Python of sizes stay symbolic: roots, logarithms, products, rounding, extremes,
and the length to which convolutions by Fourier transforms are padded (next_fast_len).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import op
from onnxpatch.formulas.symbolic import as_float, as_tensor, rounded_quotient, symbolic

FROZEN = "a size becomes a constant: int(), float(), math.* or torch_int of a shape freezes the traced value"
LINK = "https://github.com/huggingface/transformers/issues/26790"
_row = functools.partial(op, why=FROZEN, link=LINK)


@_row(
    "math.sqrt",
    name="symbolic-sqrt",
    reason="_sym_sqrt|relative error",
    tries=lambda n: torch.ones(2, n),
    sizes=(6, 3, 11),
    case=lambda x: x / math.sqrt(x.shape[1]),
    unchanged="fixed sizes",
)
def symbolic_sqrt(original: Callable[..., Tensor], value: object) -> object:
    """Keeps `math.sqrt(size)` symbolic."""
    if not symbolic(value):
        return NotImplemented
    # torch.sym_sqrt has no ONNX form; a power of a SymFloat has.
    return torch.sqrt(as_float(value)) if isinstance(value, Tensor) else as_float(value) ** 0.5


@_row(
    "math.log2",
    name="symbolic-log2",
    reason="relative error|static shape",
    # int() after log2 shows whether powers of two come out exactly.
    tries=lambda n: torch.ones(2, n),
    sizes=(8, 3, 64, 65),
    case=lambda x: x / (1 + int(math.log2(x.shape[1]))),
    unchanged=lambda x: x * math.log2(8),
    beside=("symbolic-int", "int-of-data", "data-questions"),  # int() of the logarithm
)
def symbolic_log2(original: Callable[..., Tensor], value: object) -> object:
    """Computes `math.log2(size)` as a 0-d tensor."""
    # In float64, of the logarithm too: in float32 log2(8) may be a little below 3.
    if not symbolic(value):
        return NotImplemented
    number, two = (torch.log(as_tensor(one, torch.float64)) for one in (value, 2))
    return number / two


def _entropy(x: Tensor) -> Tensor:
    """A temperature that grows with the logarithm of the length, as attention to lengths never trained on has."""
    n = x.shape[1]
    return x * math.log(n, 512) + math.log(n + 1) / n


@_row(
    "math.log",
    name="symbolic-log",
    reason="static shape|relative error",
    tries=lambda n: torch.ones(2, n),
    sizes=(6, 3, 11),
    case=_entropy,
    unchanged="fixed sizes",
)
def symbolic_log(original: Callable[..., Tensor], value: Any, *base: object) -> object:
    """Computes `math.log(size)` as a 0-d tensor: torch.export has a symbolic logarithm to base 2 only."""
    if not symbolic(value) or not all(isinstance(b, int | float) for b in base):
        return NotImplemented
    number = as_float(value) if isinstance(value, Tensor) else torch.scalar_tensor(value, dtype=torch.float32)
    return torch.log(number) / original(base[0]) if base else torch.log(number)


def _flat(x: Tensor) -> Tensor:
    import numpy

    count: Any = numpy.prod(x.shape[1:3])
    return x.reshape(x.shape[0], count, -1).cumsum(1) / x.shape[:2].numel()


@_row(
    "numpy.prod",
    "math.prod",
    "torch.Size.numel",
    name="symbolic-product",
    reason="cannot be reshaped|static shape|specialized",
    tries=lambda b, h, w: torch.ones(b, h, w, 3),
    sizes=((2, 4, 5), (3, 7, 2)),
    case=_flat,
    unchanged=lambda x: x * math.prod((2, 3)),
)
def symbolic_product(original: Callable[..., Tensor], values: object) -> object:
    """Keeps `x.shape[1:3].numel()` symbolic, and `numpy.prod(x.shape[1:3])` under trace: dynamo does that by itself."""
    numbers = list(values) if isinstance(values, tuple | list) else []
    traced = any(isinstance(number, Tensor) for number in numbers)
    if not any(map(symbolic, numbers)) or not (traced or original.__name__ == "numel"):
        return NotImplemented
    return functools.reduce(operator.mul, numbers)


def _rounded(x: Tensor) -> tuple[Tensor, ...]:
    up, down = math.ceil(x.shape[1] / 3), math.floor(x.shape[1] / 2)
    # torch.export goes on without patches where it refuses the padding; this one of complex numbers it cannot.
    turned = functional.pad(torch.polar(x, x)[:, :up], (0, (4 - up % 4) % 4))
    return turned.abs(), x.new_ones(up, down).cumsum(0)


@_row(
    "math.ceil",
    "math.floor",
    "math.trunc",
    name="symbolic-rounding",
    reason="shape|relative error|complex",
    tries=lambda n: torch.ones(2, n),
    sizes=(6, 3, 11),
    case=_rounded,
    unchanged=lambda x: x * math.ceil(2.5),
    beside=("complex-numbers", "padded-sizes"),
)
def symbolic_rounding(original: Callable[..., Tensor], value: object) -> object:
    """Keeps `math.ceil`, `math.floor` and `math.trunc` symbolic under trace. torch.SymFloat rounds by itself; what is
    written as a division of whole numbers is simplified, and sooner."""
    if isinstance(value, torch.SymFloat):
        whole = rounded_quotient(value, original.__name__ == "ceil")
        return NotImplemented if whole is None else whole
    if not (isinstance(value, Tensor) and symbolic(value)):
        return NotImplemented
    return getattr(torch, original.__name__)(value).to(torch.int64)


@_row(
    "builtins.round",
    name="symbolic-round",
    why="type Tensor doesn't define __round__ method: round() of a fraction of a size",
    reason="__round__",
    exporters=("trace",),
    # Of 10 and 30, 0.55 are halves: 5.5 and 16.5 both go to the even number, 6 and 16.
    tries=lambda n: torch.ones(2, n),
    sizes=(6, 3, 10, 11, 30),
    case=lambda x: x[:, : round(x.shape[1] * 0.55)].cumsum(1),
    unchanged=lambda x: x * round(2.5),
    # The product is that patch's; in float32 its halves would not be halves.
    beside=("double-sizes",),
)
def symbolic_round(original: Callable[..., Tensor], value: object, *digits: object) -> object:
    """Rounds to the nearest whole number, halves to the even one, as Python does."""
    if digits or not isinstance(value, Tensor) or not symbolic(value):
        return NotImplemented
    return torch.round(value).to(torch.int64) if value.is_floating_point() else value


def _filled_up(x: Tensor) -> Tensor:
    missing = math.fmod(8 - math.fmod(x.shape[1], 8), 8)
    return functional.pad(x, (0, int(missing))) * math.fmod(2 - x.shape[1], 5)


@_row(
    "math.fmod",
    "numpy.fmod",
    name="symbolic-remainder",
    reason="no attribute 'fmod'|static shape|shape",
    tries=lambda n: torch.ones(2, n),
    sizes=(13, 16, 3, 21),
    case=_filled_up,
    unchanged=lambda x: x * math.fmod(7, 4),
    beside=("symbolic-int",),
)
def symbolic_remainder(original: Callable[..., object], number: Any, divisor: Any) -> object:
    """Keeps `math.fmod` of whole numbers of sizes symbolic: the remainder has the sign of the number."""
    if not symbolic(number) or not isinstance(divisor, int):
        return NotImplemented
    if isinstance(number, Tensor):
        return torch.fmod(number, divisor)
    if not isinstance(number, torch.SymInt):
        return NotImplemented
    return torch.sym_max(number, 0) % abs(divisor) - torch.sym_max(-number, 0) % abs(divisor)


def _larger(x: Tensor) -> Tensor:
    share = max(x.shape[1] * 40.0 // 256, 1)  # under trace the quotient is computed by a dozen operators
    return x.new_ones(max(x.shape[1], x.shape[2])) * min(x.shape[1], x.shape[2], 7) * share


@_row(
    "builtins.max",
    "builtins.min",
    name="symbolic-max",
    why="max() or min() of two sizes is decided at the traced size, and the other one is never used again",
    reason="relative error|shape",
    tries=lambda h, w: torch.ones(1, h, w),
    sizes=((4, 6), (9, 3), (11, 12)),
    case=_larger,
    unchanged="fixed sizes",
)
def symbolic_max(original: Callable[..., Tensor], *args: object, **kwargs: object) -> object:
    """Computes `max(a, b, ...)` and `min` of sizes in the graph."""
    values = list(args[0]) if len(args) == 1 and isinstance(args[0], tuple | list) else list(args)
    if kwargs or len(values) < 2 or not any(symbolic(value) for value in values):
        return NotImplemented
    largest = original.__name__ == "max"
    of_sizes, of_tensors = (torch.sym_max, torch.maximum) if largest else (torch.sym_min, torch.minimum)

    def pick(a: object, b: object) -> Any:
        # Under trace a size is a tensor, the number beside it is not.
        traced = isinstance(a, Tensor) or isinstance(b, Tensor)
        return of_tensors(torch.as_tensor(a), torch.as_tensor(b)) if traced else of_sizes(a, b)

    return functools.reduce(pick, values)


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
