"""Resizing of images: nearest neighbours by Gather, with exactly torch's indices, and antialiased by ONNX's Resize.

ONNX's Resize divides an output index by the scale; torch multiplies it by the inverse. In float32 this gives other
neighbours for one in thirty pairs of sizes, such as 224 to 16 and 14 to 2. It never does for whole factors up to 32.
The formulas are those of aten/src/ATen/native/UpSample.h (`nearest_idx`, `nearest_exact_idx`). Antialiased, Resize
(opset 18 or later) agrees with torch to 2e-5 of the largest value.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onnxpatch._torch import exporting
from onnxpatch.formulas import nodes
from onnxpatch.formulas.nodes import Recipe, Value, Writer
from onnxpatch.formulas.resize import Axis, resize
from onnxpatch.formulas.symbolic import as_tensor, example_of, sampled_sizes, symbolic

_LARGEST = 32


def sampled(input: Tensor, sizes: Sequence[object], mode: str, scales: Sequence[object] | None = None) -> Tensor:
    """`F.interpolate(input, sizes, mode=mode)`. input: [N, C, *spatial]; sizes: int, SymInt or 0-d tensor.

    scales: the scale factors of the call, if torch samples by them and not by the ratio of the sizes.
    """
    for axis in reversed(range(len(sizes))):  # the last axis first: the others then copy whole rows
        scale = None if scales is None else scales[axis]
        indices = _sources(input, axis + 2, sizes[axis], mode, scale)
        input = input.index_select(axis + 2, indices)
    return input


def _sources(input: Tensor, axis: int, count: Any, mode: str, scale: object) -> Tensor:
    """The input index of each of `count` outputs along `axis`: int64 [count]."""
    device, length = input.device, input.shape[axis]
    # torch computes in float32. Of float64 values with one or three spatial axes, only the place is rounded to it.
    doubled = input.dtype == torch.float64 and input.dim() != 4
    precision = torch.float64 if doubled else torch.float32
    if isinstance(scale, int | float):
        step = as_tensor(1.0 / scale, precision, device)  # divided in double precision, as torch does
    else:
        ratio = (length, count) if scale is None else (1.0, scale)
        step = as_tensor(ratio[0], precision, device) / as_tensor(ratio[1], precision, device)
    outputs = torch.arange(count, device=device).to(precision)
    points = ((outputs if mode == "nearest" else outputs + 0.5) * step).to(torch.float32)
    # The last point may be rounded up to the size itself; torch clamps it too.
    return torch.minimum(points.floor().to(torch.int64), as_tensor(length, torch.int64, device) - 1)


def runtime_agrees(count_in: int, count_out: int) -> bool:
    """Whether ONNX's formula picks the same neighbours as torch's "nearest" for these sizes."""
    outputs, extents = np.arange(count_out, dtype=np.float32), np.asarray([count_in, count_out], dtype=np.float32)
    torchs = np.floor(outputs * (extents[0] / extents[1]))
    # In float32, as both compute it.
    return bool((torchs == np.floor(outputs / (extents[1] / extents[0]))).all())


def scales_alike(scale: float) -> bool:
    """Whether ONNX's formula picks torch's neighbours along an axis resized by `scale`, for 10,000 outputs."""
    outputs = np.arange(10_000, dtype=np.float32)
    return bool((np.floor(outputs * np.float32(1.0 / scale)) == np.floor(outputs / np.float32(scale))).all())


def resizes_alike(count_in: Any, count_out: Any) -> bool:
    """Whether ONNX's Resize picks torch's neighbours at all sizes of the inputs, as far as that can be told.

    Of static sizes the indices are compared. Of others, such as those of a pyramid, the growth is looked at for other
    sizes of the inputs: in the example alone, 10 to 20 may be a whole factor by chance.
    """
    if not symbolic(count_in) and not symbolic(count_out):
        extent, size = example_of(count_in), example_of(count_out)
        return extent is not None and size is not None and runtime_agrees(extent, size)
    pairs = sampled_sizes((count_in, count_out))
    return bool(pairs) and all(grows_wholly(*pair) for pair in pairs or ())


def grows_wholly(count_in: int, count_out: int) -> bool:
    """Whether the size grows by a whole factor, give or take one element, as in pyramids. Resize is right there."""
    factor = round(count_out / max(1, count_in))
    return 1 <= factor <= _LARGEST and abs(count_out - factor * count_in) <= 1


def resized(image: Tensor, sizes: Sequence[Any], mode: str) -> Tensor:
    """F.interpolate(image, sizes, mode=mode, antialias=True) of [N, C, H, W], float32. mode: bilinear or bicubic.

    Not for align_corners=True: ONNX cannot place the sampling points as torch does then.
    """
    if exporting() == "trace":
        # The tracer follows tensors only: a size that is a Python int would be a constant of the graph.
        sizes = [as_tensor(size, torch.int64, image.device) for size in sizes]
    return nodes.run(_resize(mode), image, *sizes)


@functools.cache
def _resize(mode: str) -> Recipe:
    def products(image: Tensor, *sizes: Any) -> Tensor:
        # Run as torch code in a side of an `If`, where the TorchScript exporter has no operator for antialias=True.
        return resize(image, [Axis(size) for size in sizes], mode, antialias=True)

    def write(writer: Writer, image: Value, *sizes: Value) -> Value:
        # Without `axes`, Resize takes the sizes of all axes: batch and channels as they are.
        rest = writer.node("Shape", image, like=writer.ints([0]), start=0, end=2, shape=(2,))
        target = writer.node("Concat", rest, *(writer.length(size) for size in sizes), axis=0, shape=(4,))
        shape = (*writer.shape(image)[:2], *(writer.number(size) for size in sizes))
        # torch renormalizes the kernel at the border, which is ONNX's exclude_outside, and its antialiased cubic has a
        # = -0.5, as PIL's. ONNX's defaults are 0 and -0.75.
        named: dict[str, Any] = dict(antialias=1, exclude_outside=1, mode="cubic" if mode == "bicubic" else "linear")
        if mode == "bicubic":
            named["cubic_coeff_a"] = -0.5
        return writer.node("Resize", image, None, None, target, shape=shape, **named)

    return products, write
