"""What `export` is asked for: input that cannot be used is one clear error; which exporter is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import onnxpatch
from tests.fingerprint import fingerprint
from tests.test_export import BOTH, image
from tests.verified_models import Right

pytestmark = pytest.mark.exports


# ------------------------------------------------------------------ what cannot be used
def _scripted() -> nn.Module:
    return torch.jit.script(Right().eval())


BAD: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "unknown patch": (Right, {"only": "no-such-patch"}, onnxpatch.UnknownPatchError, "no-such-patch"),
    "scripted model, dynamo": (_scripted, {}, onnxpatch.ScriptedModelError, "exporter=.trace."),
    "script with dynamo": (Right, {"script": True}, onnxpatch.InputError, "needs dynamo=False"),
    "shapes of a missing input": (Right, {"dynamic_shapes": {"y": {0: "b"}}}, onnxpatch.InputError, "only x"),
    "axes of a missing input": (Right, {"dynamic_axes": {"y": [0]}}, onnxpatch.InputError, "the inputs are x"),
    "axis out of range": (Right, {"dynamic_shapes": ({9: "b"},)}, onnxpatch.InputError, "no axis 9"),
    "training mode": (
        lambda: nn.Sequential(Right(), nn.Dropout()),
        {},
        onnxpatch.InputError,
        r"call model\.eval\(\) first",
    ),
    "misspelt option": (Right, {"dynamic_shape": None}, onnxpatch.InputError, "did you mean 'dynamic_shapes'"),
    "shortened option": (Right, {"opset": 18}, onnxpatch.InputError, "did you mean 'opset_version'"),
    "no module": (lambda: len, {}, onnxpatch.InputError, r"must be a torch\.nn\.Module"),
    "data of another form": (Right, {"data": [(1, 2)]}, onnxpatch.InputError, "do not fit"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_error(case: str, tmp_path: Path) -> None:
    make, options, error, says = BAD[case]
    model = make()
    model = model.eval() if isinstance(model, nn.Module) and case != "training mode" else model
    before = fingerprint(model) if type(model) is Right else None
    with pytest.raises(error, match=says):
        onnxpatch.export(model, (image(),), tmp_path / "m.onnx", **options)
    assert before is None or fingerprint(model) == before
    assert list(tmp_path.iterdir()) == []


class _OfNoForm(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.lgamma(x)


def test_what_to_do_about_a_scripted_model_that_is_refused(tmp_path: Path) -> None:
    scripted: Any = torch.jit.script(_OfNoForm().eval())
    with pytest.raises(
        onnxpatch.ExportError,
        match=r"(?s)lgamma.*next: onnxpatch\.export\(module, \.\.\.\) with the nn",
    ):
        onnxpatch.export(scripted, (torch.randn(2, 3),), tmp_path / "m.onnx", exporter="trace", attempts="asked")
    # The doctor, which exports parts alone, can do nothing with compiled code, and says so.
    with pytest.raises(onnxpatch.ScriptedModelError, match="that was scripted"):
        onnxpatch.doctor(scripted, (torch.randn(2, 3),), exporter="trace")


def test_example_that_eager_refuses(tmp_path: Path) -> None:
    with pytest.raises(onnxpatch.InputError, match="model itself refuses the example"):
        onnxpatch.export(Right().eval(), (torch.randn(2, 5, 8, 8),), tmp_path / "m.onnx")


@BOTH
def test_example_on_which_the_model_returns_nothing(dynamo: bool, tmp_path: Path) -> None:
    class Found(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor | None:
            return x * 2 if x.any() else None

    class Rows(nn.Module):
        def forward(self, x: torch.Tensor) -> object:
            return (row for row in x)

    with pytest.raises(onnxpatch.InputError, match=r"(?s)returns None on the example.*or branches=True"):
        onnxpatch.export(Found().eval(), (torch.zeros(2, 3),), tmp_path / "m.onnx", dynamo=dynamo)
    with pytest.raises(onnxpatch.InputError, match=r"(?s)returns a value of type generator.*pass flatten="):
        onnxpatch.export(Rows().eval(), (torch.zeros(2, 3),), tmp_path / "m.onnx", dynamo=dynamo)
    both = onnxpatch.export(Found().eval(), (torch.zeros(2, 3),), tmp_path / "m.onnx", dynamo=dynamo, branches=True)
    assert both.ok


def test_unwritable_paths(tmp_path: Path) -> None:
    for path, says in (
        (tmp_path / "no" / "m.onnx", "does not exist"),
        (tmp_path, "is a folder"),
        (3, "must be a path"),
    ):
        with pytest.raises(onnxpatch.InputError, match=says):
            onnxpatch.export(Right().eval(), (image(),), path)


def test_training_mode_may_be_exported_unchecked(tmp_path: Path) -> None:
    model = Right().train()
    onnxpatch.export(model, (image(),), tmp_path / "m.onnx", check=False, dynamo=False)
    assert (tmp_path / "m.onnx").is_file() and model.training


# ------------------------------------------------------------------ which exporter
@pytest.mark.parametrize(
    ("asked", "used"),
    [
        ({"exporter": "trace"}, "trace"),
        ({"exporter": "script"}, "script"),
        ({"exporter": "script", "dynamo": False, "script": True}, "script"),
        ({"dynamo": False}, "trace"),
        ({"script": False}, "dynamo"),
    ],
)
def test_exporter_by_name_or_by_torchs_keywords(asked: dict[str, Any], used: str) -> None:
    assert onnxpatch.export(nn.Linear(3, 2).eval(), (torch.ones(2, 3),), **asked, max_probes=1).exporter == used


@pytest.mark.parametrize(
    ("asked", "error", "says"),
    [
        ({"exporter": "trace", "dynamo": True}, onnxpatch.InputError, "exporter='trace' and dynamo=True disagree"),
        ({"exporter": "dynamo", "dynamo": False}, onnxpatch.InputError, "disagree"),
        ({"exporter": "trace", "script": True}, onnxpatch.InputError, "script=True disagree"),
        ({"exporter": "tensorrt"}, onnxpatch.UnknownExporterError, "use one of dynamo, trace, script"),
    ],
)
def test_exporters_that_disagree(asked: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        onnxpatch.export(nn.Linear(3, 2).eval(), (torch.ones(2, 3),), **asked)
