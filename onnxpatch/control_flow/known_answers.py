"""Answers conditions that need no second path, since a patch knows the side that is right for every input.

    if pad:                         padding by nothing changes nothing: the patch `size-shortcut` answers True
        x = F.pad(x, (0, pad))
    if x.shape != y.shape:          `pads` gets its number from the sizes, in the graph: it answers False
        pads[1] = 1

Without `branches=True`, the exporter gets the same answers. If they were decisions, they would multiply the paths of
their module, and the side that the example does not take might fail with it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch

from onnxpatch.control_flow.capture import Capture
from onnxpatch.patching import runtime


def known_answer(
    capture: Capture, function: Callable[..., object], condition: torch.Tensor | torch.SymBool
) -> bool | None:
    """What the model's patches answer to `function(condition)`, a `__bool__`; None where none of them knows."""
    # What a stand-in computes belongs to the path: choosing a number by sizes is part of the graph.
    with capture.recorded():
        answer = runtime.lookup(inspect.unwrap(function), (condition,), {})
    return None if answer is NotImplemented else bool(answer)
