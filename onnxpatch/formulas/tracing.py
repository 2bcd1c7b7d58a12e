"""What a patch may ask of the export that is running: stored values, pauses of the recording, names of torch functions.

All of it is kept in `onnxpatch._torch`, which says what each rests on; patches import it from here.
"""

from __future__ import annotations

from onnxpatch._torch.constants import constant, unrecorded
from onnxpatch._torch.function_modes import function_name, unseen
from onnxpatch._torch.symbolic_sizes import traced_from
from onnxpatch._torch.trace_state import tracing_paused

__all__ = ["constant", "function_name", "traced_from", "tracing_paused", "unrecorded", "unseen"]
