"""What patches may ask of the running export: values of constants, a pause of the recording, names of torch functions.

They are implemented in `onnxpatch._torch`; patches import them from here.
"""

from __future__ import annotations

from onnxpatch._torch.constants import constant, unrecorded
from onnxpatch._torch.function_modes import function_name, unseen
from onnxpatch._torch.kept_constants import keep_constant
from onnxpatch._torch.origins import all_ones, divided_by_data
from onnxpatch._torch.symbolic_sizes import operator_of, traced_from
from onnxpatch._torch.trace_state import tracing_paused

__all__ = [
    "all_ones",
    "constant",
    "divided_by_data",
    "function_name",
    "keep_constant",
    "operator_of",
    "traced_from",
    "tracing_paused",
    "unrecorded",
    "unseen",
]
