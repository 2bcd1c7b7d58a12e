"""Antialiased resizing by ONNX's Resize (opset 18 or later). It agrees with torch to 2e-5 of the largest value."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onnxpatch._torch import exporting
from onnxpatch.formulas import nodes
from onnxpatch.formulas.nodes import Recipe, Value, Writer
from onnxpatch.formulas.symbolic import as_tensor


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
    def resize(image: Tensor, *sizes: Any) -> Tensor:
        return F.interpolate(image, sizes, mode=mode, antialias=True)

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

    return Recipe(resize, write)
