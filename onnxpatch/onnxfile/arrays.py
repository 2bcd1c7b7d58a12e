"""`Array` and `Output`, the types of what ONNX runtimes take and give; and tensors as such arrays."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

Array: TypeAlias = npt.NDArray[np.generic]  # of any dtype
# One output of a run. A tensor: bfloat16, which NumPy lacks. A list: ONNX's sequence. None: an optional that is empty.
Output: TypeAlias = Array | torch.Tensor | list[Array] | None


def as_array(value: object) -> Array:
    """A tensor, array or number as the NumPy array that a runtime takes or gives for it.

    Complex tensors become pairs of reals, [..., 2], as in ONNX. bfloat16 and float8, which NumPy lacks, become float32.
    """
    if not isinstance(value, torch.Tensor):
        array = np.asarray(value)
        return array if array.dtype.kind in "fiubcOSU" else array.astype("float32")
    value = value.detach().cpu()
    if value.is_complex():
        value = torch.view_as_real(value.resolve_conj())
    if value.dtype == torch.bfloat16 or (value.is_floating_point() and value.element_size() == 1):
        value = value.float()
    # A view with a lazy minus sign (torch's negative bit) has none in NumPy.
    return value.resolve_neg().numpy()
