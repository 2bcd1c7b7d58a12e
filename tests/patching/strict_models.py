"""A model that torch.onnx.export takes with strict=True alone. Not in a test file: pytest rewrites `assert` there."""

from __future__ import annotations

import torch
from torch import nn


class Asserting(nn.Module):
    """Goes by a number from data that has to be a size, and by the class of its layer."""

    def __init__(self, layer: nn.Module | None = None) -> None:
        super().__init__()
        self.layer = layer if layer is not None else nn.Identity()

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        assert int(ends[-1]) == x.shape[0], "the last end is the number of rows"
        y = self.layer(x * torch.arange(int(ends[-1]))[:, None])
        return y if type(self.layer) is nn.Identity else y * 2
