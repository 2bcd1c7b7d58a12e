"""bfloat16 in and out of onnxruntime: numpy has no such type, so values pass as memory and not as arrays."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

BFLOAT16 = 16  # onnx.TensorProto.BFLOAT16
_TYPE = "tensor(bfloat16)"  # onnxruntime's name for it


def holds(proto: Any) -> bool:
    """Whether anything that the graph names is bfloat16."""
    graph = proto.graph
    named = (value.type.tensor_type.elem_type for value in (*graph.input, *graph.output, *graph.value_info))
    return BFLOAT16 in {*named, *(tensor.data_type for tensor in graph.initializer)}


def bridged(session: Any) -> Any:
    """The onnxruntime session itself, or a `Session` around it where an input or an output is bfloat16."""
    passing = any(value.type == _TYPE for value in (*session.get_inputs(), *session.get_outputs()))
    return Session(session) if passing else session


class Session:
    """An onnxruntime session that takes float32 for bfloat16 and gives torch's bfloat16."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._narrow = {i.name for i in session.get_inputs() if i.type == _TYPE}

    def get_inputs(self) -> Any:
        return self._session.get_inputs()

    def run(
        self, names: Sequence[str] | None, feed: Mapping[str, np.ndarray[Any, Any]], options: Any = None
    ) -> list[Any]:
        """As InferenceSession.run; bfloat16 outputs are torch tensors."""
        import onnxruntime

        made = onnxruntime.OrtValue
        given = {
            name: made.ortvalue_from_numpy_with_onnx_type(_bits(array), BFLOAT16) if name in self._narrow
            else made.ortvalue_from_numpy(array)
            for name, array in feed.items()
        }  # fmt: skip
        return [_read(value) for value in self._session.run_with_ort_values(names, given, options)]


def _bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    narrow = torch.from_numpy(np.ascontiguousarray(array)).to(torch.bfloat16)
    return narrow.view(torch.int16).numpy().view(np.uint16)


def _read(value: Any) -> Any:
    if not value.has_value():
        return None
    if not value.is_tensor() or value.element_type() != BFLOAT16:
        return value.numpy()
    shape = value.shape()
    count = math.prod(shape)
    if not count:
        return torch.empty(shape, dtype=torch.bfloat16)
    memory = (ctypes.c_int16 * count).from_address(value.data_ptr())
    return torch.frombuffer(memory, dtype=torch.int16).clone().view(torch.bfloat16).reshape(shape)
