"""Splits rows of dynamic length into blocks of one width, the last one padded.

Written as ONNX nodes with a result of known shape: for torch code, torch.export would reason about every size that is
divided and cut, which takes minutes.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from onnxpatch.formulas import nodes
from onnxpatch.formulas.nodes import Recipe, Value, Writer

# As the end of a Slice: up to the last entry, whatever the length is.
_END = torch.iinfo(torch.int64).max


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

    return Recipe(cut, write)


@functools.cache
def _lasts(width: int) -> Recipe:
    def write(writer: Writer, x: Value) -> Value:
        sizes = writer.shape(x)
        steps = [writer.ints([number]) for number in (width - 1, _END, len(sizes) - 1, width)]
        count = None if sizes[-1] is None else sizes[-1] // width
        return writer.node("Slice", x, *steps, shape=(*sizes[:-1], count))

    return Recipe(lambda x: x[..., width - 1 :: width], write)


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

    return Recipe(move, write)


@functools.cache
def _one_more(filling: float) -> Recipe:
    def write(writer: Writer, x: Value) -> Value:
        length = writer.shape(x)[-1]
        return _write_filled(writer, x, writer.ints([1]), filling, None if length is None else length + 1)

    return Recipe(lambda x: _filled(x, 1, filling), write)


@functools.cache
def _one_before(filling: float) -> Recipe:
    def write(writer: Writer, x: Value) -> Value:
        sizes = writer.shape(x)
        pads = writer.ints([*[0] * (len(sizes) - 1), 1, *[0] * len(sizes)])
        length = None if sizes[-1] is None else sizes[-1] + 1
        return writer.node("Pad", x, pads, _constant(writer, filling, writer.dtype(x)), shape=(*sizes[:-1], length))

    def put(x: Tensor) -> Tensor:
        return torch.cat((torch.full([*x.shape[:-1], 1], filling, dtype=x.dtype, device=x.device), x), -1)

    return Recipe(put, write)


@functools.cache
def _first_block(width: int, filling: float) -> Recipe:
    def write(writer: Writer, x: Value) -> Value:
        sizes = writer.shape(x)
        length = None if sizes[-1] is None else sizes[-1] + width
        filled = _write_filled(writer, x, writer.ints([width]), filling, length)
        cut = [writer.ints([number]) for number in (0, width, len(sizes) - 1)]
        return writer.node("Slice", filled, *cut, shape=(*sizes[:-1], width))

    return Recipe(lambda x: _filled(x, width, filling).narrow(-1, 0, width), write)


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
