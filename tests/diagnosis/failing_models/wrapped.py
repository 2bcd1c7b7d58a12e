"""Models of libraries made to take one tensor and give tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.diagnosis.failing_models.libraries import Told


class Flagged(Told):
    def __init__(self, model: nn.Module) -> None:
        super().__init__(model, interpolate_pos_encoding=True)


class Fields(nn.Module):
    """Some fields of a model's output."""

    def __init__(self, model: nn.Module, names: str) -> None:
        super().__init__()
        self.model, self._names = model, names.split()

    def forward(self, x: Tensor) -> Any:
        output = self.model(x)
        return [getattr(output, name) for name in self._names]


class Embedded(nn.Module):
    """The encoder of a model of time series, or of sound: it is given vectors."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(inputs_embeds=x).last_hidden_state


class Frames(nn.Module):
    """Two frames of one image."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(torch.stack([x, x * 0.5], 1)).last_hidden_state


class Read(nn.Module):
    """An image and four words."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        words = torch.arange(1, 5)[None].expand(x.shape[0], 4)
        return self.model(input_ids=words, pixel_values=x).last_hidden_state[:, 0]
