"""The file computes what eager does without gradients; what a state has beside tensors is no hindrance."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import onnxpatch

pytestmark = pytest.mark.exports

EXPORTERS = pytest.mark.parametrize("exporter", ["dynamo", "trace"])


class Scaled(nn.Module):
    """Other numbers in training, which is told by the gradients alone."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        y = y * 2 if torch.is_grad_enabled() else y
        return y * 3 if y.requires_grad else y


class Middle(nn.Module):
    """Writes weighted numbers into a part whose size is not known."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out, half = torch.zeros_like(x), x.shape[0] // 2
        out[half - 2 : half + 2, :4] = x[half - 2 : half + 2, :4] * self.weight
        return out


class Extra(nn.Linear):
    """Has a dict in its state, which the trace exporter cannot detach. Outside of the export it stays there."""

    def __init__(self) -> None:
        super().__init__(4, 4)

    def get_extra_state(self) -> Any:
        return {"version": 2}

    def set_extra_state(self, state: Any) -> None:
        assert state == {"version": 2}


@EXPORTERS
@pytest.mark.parametrize("model", [Scaled(), Middle(), nn.Sequential(Extra())], ids=["scaled", "middle", "extra"])
def test_a_model_that_gradients_or_its_state_would_stop(model: nn.Module, exporter: onnxpatch.Exporter) -> None:
    state = model.state_dict()
    report = onnxpatch.export(model.eval(), (torch.randn(6, 4),), None, dynamic_shapes=({0: "n"},), exporter=exporter)
    assert report.ok and len(report.attempts) == 1 and not report.bounds
    assert torch.is_grad_enabled() and model.state_dict().keys() == state.keys()
    model.load_state_dict(state)
