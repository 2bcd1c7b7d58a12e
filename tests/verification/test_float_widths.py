"""Floats of another width than eager's are a difference, and no export has them: not from sizes, not from float64."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import onnxpatch
from onnxpatch.verification.comparison import compare
from tests.layers import Computes

pytestmark = pytest.mark.exports


class _Mean(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(1, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mean = x.sum() / x.shape[0]
        return mean, self.linear(mean.reshape(1)), x.amax() * (x.shape[0] * 0.3), x.long() * (x.shape[0] / 3)


FUNCTIONS = {
    "mean": lambda x: x.sum() / x.shape[0],
    "root": lambda x: math.sqrt(x.shape[0]) * x.sum(),
    "from range": lambda x: torch.arange(x.shape[0]).float().mean() * 2,
    "size as tensor": lambda x: torch.tensor(x.shape[0]) / 2,
    "float16": lambda x: x.half().amax() * (x.shape[0] / 4),
    "float64": lambda x: x.double().sum() * (x.shape[0] / 3),
}


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
def test_a_fraction_of_sizes_widens_no_data(exporter: Any, tmp_path: Path) -> None:
    model = _Mean().eval()
    report = onnxpatch.export(
        model, (torch.randn(3, 4),), tmp_path / "m.onnx", exporter=exporter, dynamic_shapes=({0: "n"},)
    )
    # The layer behind the mean used to be refused, and the whole model was exported without patches.
    assert report.ok and len(report.attempts) == 1
    session = onnxpatch.Session(tmp_path / "m.onnx")
    for n in (1, 3, 8):
        x = torch.randn(n, 4) * 5
        for got, want in zip(session(x), model(x), strict=True):
            assert got.dtype == want.dtype
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_outputs_have_eagers_dtype(name: str, exporter: Any, tmp_path: Path) -> None:
    function = FUNCTIONS[name]
    onnxpatch.export(
        Computes(function).eval(), (torch.randn(3, 4),), tmp_path / "m.onnx", exporter=exporter,
        dynamic_shapes=({0: "n"},), output_names=["value"],
    )  # fmt: skip
    session = onnxpatch.Session(tmp_path / "m.onnx")
    assert session.outputs == ["value"]
    for n in (2, 7):
        x = torch.randn(n, 4)
        got, want = session(x), function(x)
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=1e-2 if want.dtype == torch.float16 else 1e-5, atol=1e-5)


def test_another_float_width_is_a_difference() -> None:
    one = torch.ones(2)
    assert compare("y", one, np.ones(2, "float64")).reason == "dtype float64, eager has float32"
    assert compare("y", one.double(), np.ones(2, "float32")).reason == "dtype float32, eager has float64"
    assert compare("y", one.half(), np.ones(2, "float32")).reason == "dtype float32, eager has float16"
    assert compare("y", one.bfloat16(), np.ones(2, "float32")).reason == "dtype float32, eager has bfloat16"
    assert compare("y", one.bfloat16(), one.bfloat16()).ok
    assert compare("y", one.to(torch.complex128), np.array([[1, 0]] * 2, "float64")).ok
    assert not compare("y", one.to(torch.complex128), np.array([[1, 0]] * 2, "float32")).ok
    # The values of whole numbers are compared exactly, whatever their width is.
    assert compare("y", one.long(), np.ones(2, "int32")).ok


def test_verify_says_that_a_file_is_wider(tmp_path: Path) -> None:
    wide = Computes(lambda x: x.double() * 2).eval()
    x, file = torch.randn(3, 4), tmp_path / "m.onnx"
    onnxpatch.export(wide, (x,), file, dynamic_shapes=({0: "n"},))
    report = onnxpatch.verify(file, Computes(lambda x: x * 2).eval(), (x,), dynamic_shapes=({0: "n"},))
    assert not report.ok and "dtype float64, eager has float32" in str(report)
