"""A module under two names, for which torch.export runs the model through proxies of its modules."""

from __future__ import annotations

import pytest
import torch
from einops.layers.torch import Rearrange

import onnxpatch

pytestmark = pytest.mark.exports


class Shared(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Sequential(Rearrange("b (h w) -> b h w", w=4), torch.nn.Linear(4, 4))
        self.second = torch.nn.ModuleList([self.first[1]])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second[0](self.first(x))
        return torch.einsum("bhd,bwd->bhw", y, y)


def test_patches_of_classes_and_of_functions_act_in_a_model_with_a_shared_module():
    report = onnxpatch.export(Shared().eval(), torch.randn(2, 8), dynamic_shapes=({0: "b"},), attempts="asked")
    assert report.ok
    assert {row["patch"] for row in report.plan} == {"einops-rearrange", "einsum"}
    nodes = {node.op_type for node in report.program.model.graph}
    assert "Einsum" not in nodes and "Shape" not in nodes
