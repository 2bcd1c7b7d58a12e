"""Draws behind torch.manual_seed(n) in a forward are constants; a seed says nothing of another model's draws."""

from __future__ import annotations

import onnx
import pytest
import torch
from torch import nn

import onnxpatch
from tests.exporting import export

pytestmark = pytest.mark.exports


class Seeds(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return x * 2


class Draws(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn(4)


def operators(model: nn.Module) -> set[str]:
    torch.manual_seed(3)
    with onnxpatch.patched(model, exporter="trace"):
        file = export(model, (torch.ones(2, 4),), "trace")
    return {node.op_type for node in onnx.load_model_from_string(file).graph.node}


def test_the_draws_of_the_next_model_stay_random() -> None:
    operators(Seeds())
    assert any("Random" in name for name in operators(Draws()))
