"""`BoundCall`: a call whose inputs and outputs stay where they are, for one that is made again and again.

onnxruntime copies inputs and allocates outputs in every run. Bound ones it reads and writes in place: the caller fills
the arrays that it bound, and calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from onnxpatch.errors import InputError
from onnxpatch.onnxfile.runtimes.interface import Array, Output
from onnxpatch.onnxfile.runtimes.onnxruntime import run_error

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


class BoundCall:
    """Call it without arguments: it runs the graph on the values that the bound tensors and arrays have then.

    Returns what the session returns. The values are views of onnxruntime's own memory, written anew by the next call.
    """

    def __init__(
        self,
        session: InferenceSession,
        feed: Mapping[str, torch.Tensor | Array],
        structured: Callable[[list[Output]], Any],
        during: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """during: a context manager that each run is made in."""
        self._session, self._structured, self._during = session, structured, during
        self._binding = session.io_binding()
        self._held = dict(feed)  # onnxruntime keeps addresses, not arrays
        for name, value in feed.items():
            self._bind(name, value)
        for node in session.get_outputs():
            self._binding.bind_output(node.name)

    def _bind(self, name: str, value: torch.Tensor | Array) -> None:
        contiguous = value.is_contiguous() if isinstance(value, torch.Tensor) else value.flags["C_CONTIGUOUS"]
        if not contiguous:
            raise InputError(f"input {name!r} is not contiguous in memory: bind {name}.contiguous(), and fill that")
        if isinstance(value, torch.Tensor):
            # onnxruntime asks for NumPy's dtype: that of an empty tensor as an array, wherever the tensor itself is.
            device, dtype = value.device, value.new_empty(0, device="cpu").detach().numpy().dtype
            self._binding.bind_input(
                name, device.type, device.index or 0, dtype, list(value.shape), value.detach().data_ptr()
            )
        else:
            self._binding.bind_input(name, "cpu", 0, value.dtype, list(value.shape), value.ctypes.data)

    def __call__(self) -> Any:
        try:
            with self._during():
                self._session.run_with_iobinding(self._binding)
        except Exception as error:
            raise run_error(error) from error
        return self._structured([np.asarray(value.numpy()) for value in _outputs(self._binding)])


def _outputs(binding: Any) -> Sequence[Any]:
    values: Sequence[Any] = binding.get_outputs()
    return values
