"""bfloat16 in and out of onnxruntime.

NumPy has no bfloat16, and onnxruntime's Python API takes and gives NumPy arrays only. `OrtValue` is the way around: an
input is made from the 16 bits of each number as uint16 with the ONNX type stated beside them, and an output is read
from its memory. To the caller an input is float32 and an output a bfloat16 tensor.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from onnxpatch.onnxfile.runtimes.interface import Array, Output

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, OrtValue, RunOptions

BFLOAT16 = 16  # onnx.TensorProto.BFLOAT16
TYPE = "tensor(bfloat16)"  # onnxruntime's name for it


class BridgedSession:
    """An onnxruntime session that takes float32 for bfloat16 inputs and gives torch tensors for bfloat16 outputs."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._bfloat16_inputs = {i.name for i in session.get_inputs() if i.type == TYPE}

    def run(
        self, names: Sequence[str] | None, feed: Mapping[str, Array], options: RunOptions | None = None
    ) -> list[Output]:
        """As InferenceSession.run; bfloat16 outputs are torch tensors."""
        values = {name: self._ort_value(name, array) for name, array in feed.items()}
        return [value_of(value) for value in self._session.run_with_ort_values(names, values, options)]

    def _ort_value(self, name: str, array: Array) -> OrtValue:
        from onnxruntime import OrtValue

        if name in self._bfloat16_inputs:
            return OrtValue.ortvalue_from_numpy_with_onnx_type(_bits(array), BFLOAT16)
        return OrtValue.ortvalue_from_numpy(array)


def _bits(array: Array) -> Array:
    """The bfloat16 numbers nearest to those of a float array, as uint16."""
    narrow = torch.from_numpy(np.asarray(array, order="C")).to(torch.bfloat16)
    return narrow.view(torch.int16).numpy().view(np.uint16)


def value_of(value: OrtValue) -> Output:
    """What onnxruntime gave, as a NumPy array, bfloat16 as a torch tensor; None for an optional without a value."""
    if not value.has_value():
        return None
    if not value.is_tensor() or value.element_type() != BFLOAT16:
        return value.numpy()
    shape = value.shape()
    count = math.prod(shape)
    if not count:
        return torch.empty(shape, dtype=torch.bfloat16)
    # .numpy() raises for bfloat16. The memory is the OrtValue's: it is cloned before the OrtValue goes.
    memory = (ctypes.c_int16 * count).from_address(value.data_ptr())
    return torch.frombuffer(memory, dtype=torch.int16).clone().view(torch.bfloat16).reshape(shape)
