"""`self.experts[k]` with a number from data: one path for each module of the container."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from onnxpatch.branches import answers
from onnxpatch.branches.capture import running
from onnxpatch.branches.sizes import bool_of, static_size

CONTAINERS = (nn.ModuleList, nn.Sequential, nn.ParameterList)


class Choosing:
    """Goes in front of a container's class: a tensor or symbolic number as an index is a chain of decisions."""

    def __getitem__(self, index: Any) -> Any:
        capture = running()
        get: Any = super().__getitem__  # type: ignore[misc]
        if capture is None or not capture.frames or not isinstance(index, torch.Tensor | torch.SymInt):
            return get(index)
        tensor = isinstance(index, torch.Tensor)
        known = answers.static_value(capture, index) if tensor else static_size(index)
        if known is not None:
            return get(known)
        length = len(self)  # type: ignore[arg-type]
        for number in range(length - 1):
            asked: Any = (index == number) | (index == number - length)
            if answers.decided(capture, asked) if tensor else bool_of(capture, asked):
                return get(number)
        return get(length - 1)
