"""Calls on complex tensors that name what they compute with, as torch's C functions allow."""

from __future__ import annotations

from pathlib import Path

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


class Given(torch.nn.Module):
    """A complex input, whose sizes are asked for, and writes into what was computed with it."""

    def forward(self, z: torch.Tensor, mask: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        made = z.view(-1, z.size(-1)) + 1
        made[:, 1:].mul_(z[:, 1:])
        return made.div_(z.abs().add_(1)).abs(), mask["m"].imag * z.shape[0]


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_complex_inputs_and_writes(exporter: str, tmp_path: Path) -> None:
    def calls(n: int) -> tuple[object, ...]:
        return torch.randn(n, 3, dtype=torch.complex64), {"m": torch.randn(n, dtype=torch.complex64)}

    model, file, shapes = Given(), tmp_path / "m.onnx", ({0: "n"}, {"m": {0: "n"}})
    onnxpatch.export(model, calls(4), file, dynamic_shapes=shapes, exporter=exporter, check=False)
    for n in (7, 1):
        given = calls(n)
        torch.testing.assert_close(onnxpatch.Session(file)(*given), model(*given))
