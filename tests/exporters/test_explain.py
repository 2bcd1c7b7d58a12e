"""Errors in words of other libraries are told with what to do."""

import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch.formulas.proof_cases import Computes

pytestmark = pytest.mark.exports


class Runs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, layer):
        return layer(x)


class Reversible(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return Runs.apply(x, self.layer)


@pytest.mark.parametrize(
    ("model", "exporter", "said"),
    [
        (Reversible(), "trace", r"unordered_map::at;\s+a torch.autograd.Function reads"),
        (Computes(lambda x: x * {4: 2.0}.get(x.shape[0], 1.0)), "dynamo", r"SymInt;\s+a dynamic size is looked up"),
    ],
    ids=["autograd function", "dict"],
)  # fmt: skip
def test_what_others_say_is_told_with_what_to_do(model, exporter, said):
    shapes = (({0: "b"},),) if isinstance(model, Computes) else ({0: "b"},)
    with pytest.raises(onnxpatch.ExportError, match=said):
        onnxpatch.export(model.eval(), (torch.ones(4, 3),), dynamic_shapes=shapes, exporter=exporter, attempts="asked")
