"""Tensors as the numpy arrays that ONNX runtimes take and give."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def as_array(value: Any) -> np.ndarray[Any, Any]:
    """numpy, complex as pairs of reals (so does ONNX), bfloat16 widened (numpy has none)."""
    if not isinstance(value, torch.Tensor):
        array = np.asarray(value)
        return array if array.dtype.kind in "fiubcOSU" else array.astype("float32")
    value = value.detach().cpu()
    if value.is_complex():
        value = torch.view_as_real(value.resolve_conj())
    if value.dtype == torch.bfloat16 or (value.is_floating_point() and value.element_size() == 1):
        value = value.float()
    return value.resolve_neg().numpy()
