"""What a model keeps while it is exported: errors that it catches (alone, torch.jit.trace ends the process there with
signal 11, and torch.export refuses), and warnings that name its lines."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import onnxpatch

pytestmark = pytest.mark.exports


class Fallback(nn.Module):
    """Takes its second way wherever the first does not fit: at every size but a = b, that is."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        try:
            x = self.wide(x)
        except RuntimeError:
            x = self.wide(torch.cat([x, x], -1))
        try:
            return torch.relu(x) @ y
        except RuntimeError:
            return torch.relu(x) @ y.transpose(0, 1)


def pair(a: int, b: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(a, 4), torch.randn(b, 4)


SIZES = ({0: "a"}, {0: "b"})


@pytest.mark.parametrize("dynamo, only", [(False, None), (False, ()), (True, None)], ids=["trace", "plain", "dynamo"])
def test_an_export_goes_on_after_a_caught_error(tmp_path: Path, dynamo: bool, only: tuple[str, ...] | None) -> None:
    model, axis = Fallback().eval(), torch.export.Dim.DYNAMIC if dynamo else "a"
    report = onnxpatch.export(
        model, pair(2, 3), tmp_path / "m.onnx", dynamic_shapes=({0: axis}, {}), dynamo=dynamo, only=only
    )
    assert report.ok and {size for check in report.checks for size in check.sizes.values()} >= {1, 3}


@pytest.mark.parametrize("dynamo, told", [(False, "b=4"), (True, r"VR\[4, 4\]|wrong")], ids=["trace", "dynamo"])
def test_the_way_that_the_example_did_not_take_is_missed_by_no_check(tmp_path: Path, dynamo: bool, told: str) -> None:
    model = Fallback().eval()
    with pytest.raises((onnxpatch.VerificationError, onnxpatch.ExportError), match=told):
        onnxpatch.export(model, pair(2, 3), tmp_path / "m.onnx", dynamic_shapes=SIZES, dynamo=dynamo)


def test_an_exporter_called_by_others_goes_on_too(tmp_path: Path) -> None:
    model, file, args = Fallback().eval(), tmp_path / "m.onnx", pair(2, 3)
    with onnxpatch.patched(model), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, args, str(file), dynamo=False, input_names=["x", "y"], dynamic_axes={"x": {0: "a"}}, verbose=False
        )
    assert onnxpatch.verify(file, model, args, dynamic_shapes=({0: "a"}, {})).ok


def test_the_doctor_outlives_it_and_names_the_line() -> None:
    found = onnxpatch.doctor(Fallback().eval(), pair(2, 3), dynamic_shapes=({0: "a"}, {}), exporter="trace")
    assert found.status == "refused" and "ends the process" in found.error
    assert "x = self.wide(x)" in str(found) and "exception caught in forward" in str(found)


class Asking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in self.steps:
            x = step(x)
            if x.amax() > 1e9:
                x = x / 2
        if x.amin() > 1e9:
            x = x * 2
        return x


def asked(warned: list[warnings.WarningMessage]) -> list[str]:
    lines = Path(__file__).read_text().splitlines()
    told = [one for one in warned if issubclass(one.category, torch.jit.TracerWarning)]
    assert {one.filename for one in told} == {__file__}
    return [lines[one.lineno - 1].strip() for one in told]


@pytest.mark.parametrize("only", [None, ()], ids=["patched", "plain"])
def test_warnings_name_each_line_of_the_model_once(only: tuple[str, ...] | None) -> None:
    shown = warnings.showwarning
    with warnings.catch_warnings(record=True) as warned:
        onnxpatch.export(Asking().eval(), (torch.randn(2, 4),), dynamo=False, only=only, check=False)
    assert asked(warned) == ["if x.amax() > 1e9:", "if x.amin() > 1e9:"]
    assert warnings.showwarning is shown


def test_warnings_that_the_user_ignores_stay_ignored() -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        onnxpatch.export(Asking().eval(), (torch.randn(2, 4),), dynamo=False, check=False)
    assert not warned
