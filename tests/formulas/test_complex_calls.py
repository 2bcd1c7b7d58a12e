"""Calls on complex tensors that name what they compute with, as torch's C functions allow."""

from __future__ import annotations

import pytest
import torch

import onnxpatch
from tests.exporting import export, run, wrong

pytestmark = pytest.mark.exports


class Named(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = torch.polar(abs=x.abs(), angle=x)
        b = torch.mul(input=torch.complex(real=x, imag=-x), other=a)
        chosen = torch.where(condition=x > 0, input=a, other=b)
        return torch.abs(input=b), torch.real(input=chosen), torch.angle(input=a) + torch.abs(input=x)


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_operands_by_name(exporter: str) -> None:
    model, shapes = Named().eval(), ({0: "n"},)
    with onnxpatch.patched(model, exporter=exporter):
        file = export(model, (torch.rand(4, 3) + 0.1,), exporter, shapes)
    for x in (torch.rand(7, 3) + 0.1, -torch.rand(1, 3)):
        assert wrong(run(file, (x,)), model(x), 1e-4) is None
