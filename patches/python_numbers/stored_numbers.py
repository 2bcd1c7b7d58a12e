"""Python branches on buffers and parameters, such as a schedule or a flag. Their values are known at export."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op, running_model
from onnxpatch.formulas.symbolic import constant, unrecorded


class _Scheduled(torch.nn.Module):
    """Blocks with a buffer that switches them on, and says how often their result is added."""

    def __init__(self) -> None:
        super().__init__()
        self.active = torch.nn.Buffer(torch.tensor([0.0, 0.7]))
        self.times = torch.nn.Buffer(torch.tensor([3, 2]))

    def forward(self, x: Tensor) -> Tensor:
        for block in range(2):
            if self.active[block] > 0.5:
                times: Any = self.times[block].item()
                x = torch.cat([x] * times) + int(self.times.sum())
        return x


@op(
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
    "item",
    "tolist",
    name="stored-numbers",
    why="Could not guard on data-dependent expression Eq(u0, 1): an if on a buffer or parameter",
    reason="data-dependent expression",
    link="https://github.com/pytorch/pytorch/issues/157355",
    exporters=("dynamo",),
    tries=lambda n: torch.randn(n, 3),
    sizes=(4, 2, 7),
    case=_Scheduled,
)
def stored_numbers(original: Callable[..., Tensor], tensor: Tensor) -> object:
    """Gives the Python number of a tensor that is computed from parameters and buffers only: these are constants."""
    running = running_model()
    # Without a model no tensor is known to be stored.
    if running is None or running.model is None:
        return NotImplemented
    known = constant(tensor, running.model, running.tensors)
    return NotImplemented if known is None else unrecorded(lambda: original(known))
