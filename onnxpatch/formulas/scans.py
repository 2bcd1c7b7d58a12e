"""Rows of dynamic length in blocks of one width, and what is computed along them: products, log-sums, maxima so far.

A scan of any associative operation goes through all blocks at once, entry by entry. The results of the blocks form a
shorter row, which is scanned in the same way. The axis of the scan comes first: what is moved then lies together.

Blocks are written as ONNX nodes with a result of known shape: for torch code, torch.export would reason about every
size that is divided and cut, which takes minutes.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from onnxpatch.formulas import nodes
from onnxpatch.formulas.nodes import Recipe, Value, Writer

# Longer blocks take more steps, shorter ones more levels.
_BLOCK = 8
# Levels for a dynamic length: for 14 million entries. A longer row stops the runtime at the last level's Reshape.
_LEVELS = 8
State = tuple[Tensor, ...]


def blocks(x: Tensor, width: int, filling: float) -> Tensor:
    """(..., n) to (..., n // width + 1, width), padded with `filling`."""
    return nodes.run(_blocks(width, filling), x)


def one_more(x: Tensor, filling: float) -> Tensor:
    """(..., n) to (..., n + 1): `filling` appended."""
    return nodes.run(_one_more(filling), x)


@functools.cache
def _blocks(width: int, filling: float, front: bool = False, one: bool = False) -> Recipe:
    """front: of the first axis, (n, ...) to (n // width + 1, width, ...). one: there may be one block only."""

    def cut(x: Tensor) -> Tensor:
        turned = x.movedim(0, -1) if front else x
        count = 1 if one else turned.shape[-1] // width + 1
        filled = _filled(turned, width, filling).narrow(-1, 0, count * width)
        found = filled.reshape([*turned.shape[:-1], count, width])
        return found.movedim((-2, -1), (0, 1)) if front else found

    def write(writer: Writer, x: Value) -> Value:
        sizes = writer.shape(x)
        rank, axis = len(sizes), 0 if front else len(sizes) - 1
        count = 1 if one else None if sizes[axis] is None else sizes[axis] // width + 1
        whole = writer.node("Shape", x, like=writer.ints([0]), shape=(rank,))
        length = writer.node("Gather", whole, writer.ints([axis]), shape=(1,))
        # 1 to `width` entries are missing, never 0: one formula serves all lengths, and a row that is a multiple of the
        # width gets one block of filling more.
        over = writer.node("Mod", length, writer.ints([width]), shape=(1,))
        missing = writer.node("Sub", writer.ints([width]), over, shape=(1,))
        filled = _write_filled(writer, x, missing, filling, None if count is None else count * width, axis)
        many = writer.node("Div", writer.node("Add", length, missing, shape=(1,)), writer.ints([width]), shape=(1,))
        many = writer.ints([1]) if one else many
        ends = [writer.ints([number]) for number in ((1, rank) if front else (0, rank - 1))]
        rows, parts = writer.node("Slice", whole, *ends, shape=(rank - 1,)), [many, writer.ints([width])]
        target = writer.node("Concat", *([*parts, rows] if front else [rows, *parts]), axis=0, shape=(rank + 1,))
        shape = [count, width, *sizes[1:]] if front else [*sizes[:-1], count, width]
        # allowzero: the sizes are computed, and one of 0 (an empty batch) must stay 0 and not mean "copy".
        return writer.node("Reshape", filled, target, allowzero=1, shape=shape)

    return cut, write


@functools.cache
def _one_more(filling: float) -> Recipe:
    def write(writer: Writer, x: Value) -> Value:
        length = writer.shape(x)[-1]
        return _write_filled(writer, x, writer.ints([1]), filling, None if length is None else length + 1)

    return lambda x: _filled(x, 1, filling), write


@functools.cache
def _before(filling: float) -> Recipe:
    """Of totals (n, ...) of blocks (count, width, ...), count <= n: those before each block, (count, 1, ...)."""

    def put(totals: Tensor, blocked: Tensor) -> Tensor:
        first = torch.full_like(totals.narrow(0, 0, 1), filling)
        return torch.cat((first, totals))[: blocked.shape[0]].unsqueeze(1)

    def write(writer: Writer, totals: Value, blocked: Value) -> Value:
        (size, *rest), count = writer.shape(totals), writer.shape(blocked)[0]
        zero, pads = writer.ints([0]), writer.ints([1, *[0] * (2 * len(rest) + 1)])
        neutral = _constant(writer, filling, writer.dtype(totals))
        moved = writer.node("Pad", totals, pads, neutral, shape=(None if size is None else size + 1, *rest))
        whole = writer.node("Shape", blocked, like=zero, shape=(len(rest) + 2,))
        end = writer.node("Gather", whole, zero, shape=(1,))
        kept = writer.node("Slice", moved, zero, end, zero, shape=(count, *rest))
        return writer.node("Unsqueeze", kept, writer.ints([1]), shape=(count, 1, *rest))

    return put, write


def _filled(x: Tensor, missing: int, filling: float) -> Tensor:
    return torch.cat((x, torch.full([*x.shape[:-1], missing], filling, dtype=x.dtype, device=x.device)), -1)


def _write_filled(writer: Writer, x: Value, missing: Value, filling: float, length: object, axis: int = -1) -> Value:
    sizes, axis = writer.shape(x), axis % len(writer.shape(x))
    # Pad takes all beginnings, then all ends.
    around = [writer.ints([0] * many) for many in (len(sizes) + axis, len(sizes) - 1 - axis) if many]
    pads = writer.node("Concat", around[0], missing, *around[1:], axis=0, shape=(2 * len(sizes),))
    sizes[axis] = length
    return writer.node("Pad", x, pads, _constant(writer, filling, writer.dtype(x)), shape=sizes)


def _constant(writer: Writer, number: float, dtype: torch.dtype) -> Value:
    if dtype.is_floating_point:
        return writer.scalar(float(number), dtype)
    scalar = writer.node("Squeeze", writer.ints([int(number)]), shape=())  # Writer.scalar would round it to float32
    return scalar if dtype == torch.int64 else writer.cast(scalar, dtype, ())


@dataclass(frozen=True)
class _Scan:
    """combine: associative function of two states, the earlier one first. neutral: for each tensor of a state, its
    neutral element."""

    combine: Callable[[State, State], State]
    neutral: Sequence[float]


def scanned_product(x: Tensor, dim: int) -> Tensor:
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
    """torch.cummax: the largest entry so far and its index, the last one of equal entries; from a NaN on, NaN."""
    x = x.movedim(dim, 0)
    least = -torch.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    (largest,) = scanned(_Scan(_larger, (least,)), (x,), 0)
    # The last entry so far that is no smaller than all before it, or is NaN itself.
    newer = (x >= largest) | torch.isnan(x) if x.is_floating_point() else x >= largest
    places = torch.arange(x.shape[0], dtype=torch.int32, device=x.device).view([-1, *[1] * (x.dim() - 1)])
    (found,) = scanned(_Scan(_larger, (-1,)), (torch.where(newer, places, torch.full_like(places, -1)),), 0)
    return largest.movedim(0, dim), found.to(torch.int64).movedim(0, dim)


def _larger(before: State, after: State) -> State:
    return (torch.maximum(before[0], after[0]),)


_PRODUCT = _Scan(lambda before, after: (before[0] * after[0],), (1.0,))
_COMPLEX_PRODUCT = _Scan(_complex_product, (1.0, 0.0))
_LINEAR = _Scan(_linear, (1.0, 0.0))
_COMPLEX_LINEAR = _Scan(_complex_linear, (1.0, 0.0, 0.0, 0.0))
# The lowest float, not -inf, is neutral: the difference of two -inf is NaN.
_LOG_SUM = _Scan(_log_sum, (torch.finfo(torch.float32).min, 0.0))


def scanned(scan: _Scan, state: State, dim: int) -> State:
    """Each entry along `dim` combined with all before it."""
    # torch takes a 0-d tensor for a row of one.
    if state[0].dim() == 0:
        return state
    found = _along_first(scan, tuple(part.movedim(dim, 0) for part in state), _LEVELS)
    return tuple(part.narrow(0, 0, state[0].shape[dim]).movedim(0, dim) for part in found)


def _along_first(scan: _Scan, state: State, levels: int) -> State:
    """What follows the last entry is of no use: of the filling of the last block."""
    length = state[0].shape[0]
    if isinstance(length, int) and 0 < length <= _BLOCK:
        return _one_by_one(scan, state, 0, length)[0]
    parts = zip(state, scan.neutral, strict=True)
    blocked = tuple(nodes.run(_blocks(_BLOCK, value, True, levels == 1), part) for part, value in parts)
    blocked, totals = _one_by_one(scan, blocked, 1, _BLOCK)
    if levels > 1:
        parts = zip(_along_first(scan, totals, levels - 1), scan.neutral, strict=True)
        before = tuple(nodes.run(_before(value), part, blocked[0]) for part, value in parts)
        blocked = scan.combine(before, blocked)
    return tuple(part.flatten(0, 1) for part in blocked)


def _one_by_one(scan: _Scan, state: State, axis: int, length: int) -> tuple[State, State]:
    """(Each entry along a short axis combined with all before it, the last of them without that axis)."""
    first, *rest = zip(*(part.split(1, axis) for part in state), strict=True)
    found = list(itertools.accumulate(rest, scan.combine, initial=first))
    whole = tuple(torch.cat(parts, axis) for parts in zip(*found, strict=True))
    return whole, tuple(part.squeeze(axis) for part in found[-1])
