"""Running products, log-sums and maxima: parallel prefix scans of any associative operation.

A step combines each entry with the one 1, 2, 4, ... places before it. Blocks of 128 entries take seven steps. The
results of the blocks form a shorter row, which is scanned in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from onnxpatch.formulas.blocks import blocks, first_block, moved, one_before

# log2 of it is the number of steps: longer blocks take more of them, shorter ones more levels.
_BLOCK = 128
# Levels for a dynamic length: enough for 128 ** 4 entries, more than fit into memory.
_LEVELS = 4

State = tuple[Tensor, ...]


@dataclass(frozen=True)
class Scan:
    """combine: associative function of two states, the earlier one first. neutral: for each tensor of a state, its
    neutral element."""

    combine: Callable[[State, State], State]
    neutral: Sequence[float]


def cumprod(x: Tensor, dim: int) -> Tensor:
    """torch.cumprod; float32 is multiplied in float64, as in torch: the product of half a row may overflow."""
    if not x.is_floating_point():
        return scanned(_PRODUCT, (x.to(torch.int64),), dim)[0]
    return scanned(_PRODUCT, (x.double(),), dim)[0].to(x.dtype)


def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """torch.logcumsumexp: the largest entry so far, and the sum of all exponentials relative to it."""
    limits = torch.finfo(x.dtype)
    largest = x.clamp(limits.min, limits.max)  # finite, since inf - inf is NaN; infinite entries stay in the sum
    # Relative to the largest so far, no exponential overflows.
    largest, total = scanned(_LOG_SUM, (largest, torch.exp(x - largest)), dim)
    return largest + torch.log(total)


def complex_cumprod(real: Tensor, imag: Tensor, dim: int) -> State:
    """torch.cumprod of complex numbers, as their two parts; in double precision, as for real ones."""
    found = scanned(_COMPLEX_PRODUCT, (real.double(), imag.double()), dim)
    return tuple(part.to(real.dtype) for part in found)


def _complex_product(before: State, after: State) -> State:
    (a, b), (c, d) = before, after
    return a * c - b * d, a * d + b * c


def linear_recurrence(factors: Tensor, inputs: Tensor, dim: int) -> State:
    """(running products of `factors`, h): h[t] = factors[t] * h[t - 1] + inputs[t] along `dim`, from h[-1] = 0."""
    return scanned(_LINEAR, (factors, inputs), dim)


def _linear(before: State, after: State) -> State:
    return before[0] * after[0], after[0] * before[1] + after[1]


def complex_recurrence(factors: State, inputs: State, dim: int) -> State:
    """`linear_recurrence` of complex numbers, real parts before imaginary ones: four tensors."""
    return scanned(_COMPLEX_LINEAR, (*factors, *inputs), dim)


def _complex_linear(before: State, after: State) -> State:
    turned = _complex_product(before[2:], after[:2])
    sums = tuple(one + other for one, other in zip(turned, after[2:], strict=True))
    return *_complex_product(before[:2], after[:2]), *sums


def _log_sum(before: State, after: State) -> State:
    largest = torch.maximum(before[0], after[0])
    return largest, before[1] * torch.exp(before[0] - largest) + after[1] * torch.exp(after[0] - largest)


def cummax(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """torch.cummax: the largest entry so far and its index, the last one of equal entries."""
    places = torch.arange(x.shape[dim], device=x.device)
    shape = [1] * x.dim()
    shape[dim] = -1
    least = -torch.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    # The index travels with the entry, so one scan finds both.
    state = x, places.reshape(shape).expand_as(x)
    largest, found = scanned(Scan(_later_of_equal, (least, -1)), state, dim)
    return largest, found


def _later_of_equal(before: State, after: State) -> State:
    # >= and not >: of equal entries torch.cummax gives the last. A NaN stays the largest from where it is.
    later = after[0] >= before[0]
    later = later | torch.isnan(after[0]) if after[0].is_floating_point() else later
    return tuple(torch.where(later, new, old) for old, new in zip(before, after, strict=True))


_PRODUCT = Scan(lambda before, after: (before[0] * after[0],), (1.0,))
_COMPLEX_PRODUCT = Scan(_complex_product, (1.0, 0.0))
_LINEAR = Scan(_linear, (1.0, 0.0))
_COMPLEX_LINEAR = Scan(_complex_linear, (1.0, 0.0, 0.0, 0.0))
# The lowest float, not -inf, is neutral: the difference of two -inf is NaN.
_LOG_SUM = Scan(_log_sum, (torch.finfo(torch.float32).min, 0.0))


def scanned(scan: Scan, state: State, dim: int) -> State:
    """Each entry along `dim` combined with all before it."""
    # torch takes a 0-d tensor for a row of one.
    if state[0].dim() == 0:
        return state
    axis, last = dim % state[0].dim(), state[0].dim() - 1
    if axis == last:
        return _along_last(scan, state, _LEVELS)
    turned = _along_last(scan, tuple(part.transpose(axis, last) for part in state), _LEVELS)
    return tuple(part.transpose(axis, last) for part in turned)


def _along_last(scan: Scan, state: State, levels: int) -> State:
    length = state[0].shape[-1]
    if isinstance(length, int) and length <= _BLOCK:
        return _doubled(scan, state, length)
    if levels == 1:
        return _doubled(scan, _each(scan, state, first_block), _BLOCK)  # padded: the caller cuts it
    blocked = _doubled(scan, _each(scan, state, blocks), _BLOCK)
    totals = _along_last(scan, tuple(part[..., -1] for part in blocked), levels - 1)
    # The totals of a dynamic length end in a padded block; only those of this level's blocks are used.
    count = blocked[0].shape[-2]
    before = tuple(
        one_before(part, value).narrow(-1, 0, count).unsqueeze(-1)
        for part, value in zip(totals, scan.neutral, strict=True)
    )
    whole = scan.combine(before, blocked)
    return tuple(part.flatten(-2).narrow(-1, 0, length) for part in whole)


def _each(scan: Scan, state: State, cut: Callable[[Tensor, int, float], Tensor]) -> State:
    return tuple(cut(part, _BLOCK, value) for part, value in zip(state, scan.neutral, strict=True))


def _doubled(scan: Scan, state: State, length: int) -> State:
    step = 1
    while step < length:
        state = scan.combine(_moved(scan, state, step), state)
        step *= 2
    return state


def _moved(scan: Scan, state: State, places: int) -> State:
    """The state shifted right by `places`, with neutral elements on the left."""
    return tuple(moved(part, places, value) for part, value in zip(state, scan.neutral, strict=True))
