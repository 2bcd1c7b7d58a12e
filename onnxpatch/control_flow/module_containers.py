"""`self.experts[k]` with a number from data: one path for each module of the container."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from onnxpatch.control_flow import scalar_conversions, size_decisions
from onnxpatch.control_flow.capture import Capture, among
from onnxpatch.control_flow.current_capture import running
from onnxpatch.control_flow.size_decisions import static_size

CONTAINERS = (nn.ModuleList, nn.Sequential, nn.ParameterList)


class Choosing:
    """Goes in front of a container's class: a tensor or symbolic number as an index is a chain of decisions."""

    def __getitem__(self, index: Any) -> Any:
        capture = running()
        get: Any = super().__getitem__  # type: ignore[misc]
        if capture is None or not capture.frames or not isinstance(index, torch.Tensor | torch.SymInt):
            return get(index)
        tensor = isinstance(index, torch.Tensor)
        known = scalar_conversions.static_value(capture, index) if tensor else static_size(index)
        if known is not None:
            return get(known)
        return get(_entry(capture, index, len(self)))  # type: ignore[arg-type]


def _entry(capture: Capture, index: Any, length: int) -> int:
    tensor, chosen = isinstance(index, torch.Tensor), capture.frames[-1].chosen
    key = id(index) if tensor else index.node.expr
    if key not in chosen:
        decide: Any = scalar_conversions.any_of if tensor else size_decisions.any_of
        chosen[key] = among(length, lambda numbers: decide(capture, index, numbers))
    return chosen[key]
