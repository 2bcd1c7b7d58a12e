"""torch.export as the ONNX exporter calls it, for what it tells about sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.export import Dim

from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.patching.model_state import Snapshot


def capture(model: Any, inputs: Inputs, specs: Sequence[shapes.LeafSpec]) -> Any:
    """An ExportedProgram of the model with its runtime asserts kept. Raises what torch.export raises."""
    hinted = [{axis: Dim.DYNAMIC if isinstance(s, str) else s for axis, s in spec.items()} for spec in specs]
    args, kwargs = inputs.rebuild(inputs.values())
    state = Snapshot(model)
    try:
        with torch.no_grad():
            return torch.export.export(
                model,
                args,
                kwargs=kwargs,
                dynamic_shapes=shapes.to_shapes(inputs, hinted),
                strict=False,
                prefer_deferred_runtime_asserts_over_guards=True,
            )
    finally:
        state.restore()
