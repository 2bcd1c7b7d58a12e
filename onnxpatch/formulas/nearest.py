"""Nearest-neighbour resizing by Gather, with exactly torch's indices.

ONNX's Resize divides an output index by the scale; torch multiplies it by the inverse. In float32 this gives other
neighbours for one in thirty pairs of sizes, such as 224 to 16 and 14 to 2. It never does for whole factors up to 32.
The formulas are those of aten/src/ATen/native/UpSample.h (`nearest_idx`, `nearest_exact_idx`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onnxpatch.formulas.symbolic import as_tensor

_LARGEST = 32


def sampled(input: Tensor, sizes: Sequence[object], mode: str, scales: Sequence[object] | None = None) -> Tensor:
    """`F.interpolate(input, sizes, mode=mode)`. input: [N, C, *spatial]; sizes: int, SymInt or 0-d tensor.

    scales: the scale factors of the call, if torch samples by them and not by the ratio of the sizes.
    """
    for axis in reversed(range(len(sizes))):  # the last axis first: the others then copy whole rows
        scale = None if scales is None else scales[axis]
        indices = _sources(input.shape[axis + 2], sizes[axis], mode, input.device, scale)
        input = input.index_select(axis + 2, indices)
    return input


def _sources(count_in: object, count_out: Any, mode: str, device: torch.device, scale: object) -> Tensor:
    """The input index of every output index: int64 [count_out]."""
    ratio = (count_in, count_out) if scale is None else (1.0, scale)
    step = as_tensor(ratio[0], torch.float32, device) / as_tensor(ratio[1], torch.float32, device)
    outputs = torch.arange(count_out, device=device).to(torch.float32)
    points = (outputs if mode == "nearest" else outputs + 0.5) * step
    # In float32 the last point may be rounded up to the size itself; torch clamps it too.
    return torch.minimum(points.floor().to(torch.int64), as_tensor(count_in, torch.int64, device) - 1)


def runtime_agrees(count_in: int, count_out: int) -> bool:
    """Whether ONNX's formula picks the same neighbours as torch's "nearest" for these sizes."""
    outputs, extents = np.arange(count_out, dtype=np.float32), np.asarray([count_in, count_out], dtype=np.float32)
    torchs = np.floor(outputs * (extents[0] / extents[1]))
    # In float32, as both compute it.
    return bool((torchs == np.floor(outputs / (extents[1] / extents[0]))).all())


def grows_wholly(count_in: int, count_out: int) -> bool:
    """Whether the size grows by a whole factor, give or take one element, as in pyramids. Resize is right there."""
    factor = round(count_out / max(1, count_in))
    return 1 <= factor <= _LARGEST and abs(count_out - factor * count_in) <= 1
