"""torch._numpy: NumPy's functions on arrays that are tensors. Where it is gone, arrays of sizes stay NumPy's."""

from __future__ import annotations

from typing import Any

from onnxpatch._torch.relied_on import gone_module

numpy_on_tensors: Any
Array: Any
try:
    import torch._numpy

    numpy_on_tensors, Array = torch._numpy, torch._numpy.ndarray  # type: ignore[attr-defined]
except (ImportError, AttributeError):
    numpy_on_tensors, Array = gone_module("torch._numpy"), ()
