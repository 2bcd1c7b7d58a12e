"""`self.experts[k]` with a number from data: one path for each module of a ModuleList, Sequential or ParameterList."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import nn

from onnxpatch.control_flow.capture import Capture, current_capture
from onnxpatch.control_flow.conditions import decide_one_of
from onnxpatch.control_flow.list_lengths import choose_entry
from onnxpatch.control_flow.static_values import static_value

if TYPE_CHECKING:
    from onnxpatch.control_flow.pytrees import Name

CONTAINERS = (nn.ModuleList, nn.Sequential, nn.ParameterList)


class IndexedByData:
    """Mixin in front of a container's class: indexing with a tensor or symbolic number is a chain of decisions."""

    def __getitem__(self, index: object) -> object:
        capture = current_capture()
        get: Callable[[object], object] = super().__getitem__  # type: ignore[misc]
        if capture is None or not capture.explorers or not isinstance(index, torch.Tensor | torch.SymInt):
            return get(index)
        known = static_value(capture, index)
        return get(_entry(capture, index, len(self)) if known is None else known)  # type: ignore[arg-type]


def _entry(capture: Capture, index: torch.Tensor | torch.SymInt, length: int) -> int:
    """The entry that `index` means on this path; decided once for equal numbers."""
    chosen = capture.explorers[-1].chosen
    # Equal sizes may be different SymInt objects, so the expression is the key.
    key: Name = id(index) if isinstance(index, torch.Tensor) else index.node.expr
    if key not in chosen:
        chosen[key] = choose_entry(length, lambda numbers: decide_one_of(capture, index, numbers))
    return chosen[key]
