"""Rows of dynamic length in blocks of one width, and what is computed along them: products, log-sums, maxima so far.

A scan of any associative operation combines each entry with the one 1, 2, 4, ... places before it. Blocks of 32
entries take five steps. The results of the blocks form a shorter row, which is scanned in the same way.

Blocks are written as ONNX nodes with a result of known shape: for torch code, torch.export would reason about every
size that is divided and cut, which takes minutes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from onnxpatch.formulas import nodes
from onnxpatch.formulas.nodes import Recipe, Value, Writer

# As the end of a Slice: up to the last entry, whatever the length is.
_END = torch.iinfo(torch.int64).max
# log2 of it is the number of steps: longer blocks take more of them, shorter ones more levels.
_BLOCK = 32
# Levels for a dynamic length: enough for 32 ** 6 entries, more than fit into memory.
_LEVELS = 6
State = tuple[Tensor, ...]


def blocks(x: Tensor, width: int, filling: float) -> Tensor:
    """(..., n) to (..., n // width + 1, width), padded with `filling`."""
    return nodes.run(_blocks(width, filling), x)


def last_of_blocks(x: Tensor, width: int) -> Tensor:
    """(..., n) to (..., n // width): the last entry of each full block."""
    return nodes.run(_lasts(width), x)


def one_more(x: Tensor, filling: float) -> Tensor:
    """(..., n) to (..., n + 1): `filling` appended."""
    return nodes.run(_one_more(filling), x)


def one_before(x: Tensor, filling: float) -> Tensor:
    """(..., n) to (..., n + 1): `filling` in front."""
    return nodes.run(_one_before(filling), x)


def first_block(x: Tensor, width: int, filling: float) -> Tensor:
    """(..., n) to (..., width): padded with `filling`, or cut."""
    return nodes.run(_first_block(width, filling), x)


def moved(x: Tensor, places: int, filling: float) -> Tensor:
    """(..., n), shifted right by `places` (1 or more, less than n), with `filling` on the left.

    onnxruntime up to 1.23 reads other memory where one Pad cuts off the whole row.
    """
    return nodes.run(_moved(places, filling), x)


@functools.cache
def _blocks(width: int, filling: float) -> Recipe:
    def cut(x: Tensor) -> Tensor:
        count = x.shape[-1] // width + 1
        return _filled(x, width, filling).narrow(-1, 0, count * width).reshape([*x.shape[:-1], count, width])

    def write(writer: Writer, x: Value) -> Value:
        sizes = writer.shape(x)
        rank, count = len(sizes), None if sizes[-1] is None else sizes[-1] // width + 1
        whole = writer.node("Shape", x, like=writer.ints([0]), shape=(rank,))
        length = writer.node("Gather", whole, writer.ints([rank - 1]), shape=(1,))
        # 1 to `width` entries are missing, never 0: one formula serves all lengths, and a row that is a multiple of the
        # width gets one block of filling more.
        over = writer.node("Mod", length, writer.ints([width]), shape=(1,))
        missing = writer.node("Sub", writer.ints([width]), over, shape=(1,))
        filled = _write_filled(writer, x, missing, filling, None if count is None else count * width)
        many = writer.node("Div", writer.node("Add", length, missing, shape=(1,)), writer.ints([width]), shape=(1,))
        rows = writer.node("Slice", whole, writer.ints([0]), writer.ints([rank - 1]), shape=(rank - 1,))
        target = writer.node("Concat", rows, many, writer.ints([width]), axis=0, shape=(rank + 1,))
        # allowzero: the sizes are computed, and one of 0 (an empty batch) must stay 0 and not mean "copy".
        return writer.node("Reshape", filled, target, allowzero=1, shape=(*sizes[:-1], count, width))

    return cut, write


@functools.cache
def _lasts(width: int) -> Recipe:
    def write(writer: Writer, x: Value) -> Value:
        sizes = writer.shape(x)
        steps = [writer.ints([number]) for number in (width - 1, _END, len(sizes) - 1, width)]
        count = None if sizes[-1] is None else sizes[-1] // width
        return writer.node("Slice", x, *steps, shape=(*sizes[:-1], count))

    return lambda x: x[..., width - 1 :: width], write


@functools.cache
def _moved(places: int, filling: float) -> Recipe:
    def write(writer: Writer, x: Value) -> Value:
        sizes = writer.shape(x)
        pads = [0] * (len(sizes) - 1)
        # A negative pad cuts off: one node shifts the row.
        by = writer.ints([*pads, places, *pads, -places])
        return writer.node("Pad", x, by, _constant(writer, filling, writer.dtype(x)), shape=sizes)

    def move(x: Tensor) -> Tensor:
        # The eager form, which gives the shape: cut behind, as the negative pad cuts.
        before = torch.full([*x.shape[:-1], places], filling, dtype=x.dtype, device=x.device)
        return torch.cat((before, x), -1).narrow(-1, 0, x.shape[-1])

    return move, write


@functools.cache
def _one_more(filling: float) -> Recipe:
    def write(writer: Writer, x: Value) -> Value:
        length = writer.shape(x)[-1]
        return _write_filled(writer, x, writer.ints([1]), filling, None if length is None else length + 1)

    return lambda x: _filled(x, 1, filling), write


@functools.cache
def _one_before(filling: float) -> Recipe:
    def write(writer: Writer, x: Value) -> Value:
        sizes = writer.shape(x)
        pads = writer.ints([*[0] * (len(sizes) - 1), 1, *[0] * len(sizes)])
        length = None if sizes[-1] is None else sizes[-1] + 1
        return writer.node("Pad", x, pads, _constant(writer, filling, writer.dtype(x)), shape=(*sizes[:-1], length))

    def put(x: Tensor) -> Tensor:
        return torch.cat((torch.full([*x.shape[:-1], 1], filling, dtype=x.dtype, device=x.device), x), -1)

    return put, write


@functools.cache
def _first_block(width: int, filling: float) -> Recipe:
    def write(writer: Writer, x: Value) -> Value:
        sizes = writer.shape(x)
        length = None if sizes[-1] is None else sizes[-1] + width
        filled = _write_filled(writer, x, writer.ints([width]), filling, length)
        cut = [writer.ints([number]) for number in (0, width, len(sizes) - 1)]
        return writer.node("Slice", filled, *cut, shape=(*sizes[:-1], width))

    return lambda x: _filled(x, width, filling).narrow(-1, 0, width), write


def _filled(x: Tensor, missing: int, filling: float) -> Tensor:
    return torch.cat((x, torch.full([*x.shape[:-1], missing], filling, dtype=x.dtype, device=x.device)), -1)


def _write_filled(writer: Writer, x: Value, missing: Value, filling: float, length: object) -> Value:
    sizes = writer.shape(x)
    # Pad takes all beginnings, then all ends: the last number is the end of the last axis.
    pads = writer.node("Concat", writer.ints([0] * (2 * len(sizes) - 1)), missing, axis=0, shape=(2 * len(sizes),))
    return writer.node("Pad", x, pads, _constant(writer, filling, writer.dtype(x)), shape=(*sizes[:-1], length))


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
    """torch.cummax: the largest entry so far and its index, the last one of equal entries."""
    last = x.dim() - 1
    x = x.transpose(dim, last)
    least = -torch.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    nan, known = torch.isnan(x), x
    if x.is_floating_point():
        # A NaN stays the largest from where it is: behind it only others like it count.
        behind = nan.to(torch.float32).cumsum(-1) > 0
        known = torch.where(behind, torch.where(nan, torch.inf, -torch.inf).to(x.dtype), x)
    (largest,) = scanned(_Scan(_larger, (least,)), (known,), -1)
    # The last entry so far that is no smaller than all before it.
    places = torch.arange(x.shape[-1], dtype=torch.int32, device=x.device)
    (found,) = scanned(_Scan(_larger, (-1,)), (torch.where(known >= largest, places, torch.full_like(places, -1)),), -1)
    largest = torch.where(behind, torch.nan, largest) if x.is_floating_point() else largest
    return largest.transpose(dim, last), found.to(torch.int64).transpose(dim, last)


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
    axis, last = dim % state[0].dim(), state[0].dim() - 1
    if axis == last:
        return _along_last(scan, state, _LEVELS)
    turned = _along_last(scan, tuple(part.transpose(axis, last) for part in state), _LEVELS)
    return tuple(part.transpose(axis, last) for part in turned)


def _along_last(scan: _Scan, state: State, levels: int) -> State:
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


def _each(scan: _Scan, state: State, cut: Callable[[Tensor, int, float], Tensor]) -> State:
    return tuple(cut(part, _BLOCK, value) for part, value in zip(state, scan.neutral, strict=True))


def _doubled(scan: _Scan, state: State, length: int) -> State:
    step = 1
    while step < length:
        state = scan.combine(_axis_moved(scan, state, step), state)
        step *= 2
    return state


def _axis_moved(scan: _Scan, state: State, places: int) -> State:
    """The state shifted right by `places`, with neutral elements on the left."""
    return tuple(moved(part, places, value) for part, value in zip(state, scan.neutral, strict=True))
