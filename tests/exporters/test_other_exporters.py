"""Tools that call torch.onnx.export on their own: inside patched(...) they export right what they get wrong alone."""

from __future__ import annotations

import copy
import logging
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import onnxpatch

pytestmark = pytest.mark.exports

IMAGE = {0: "batch", 2: "height", 3: "width"}


@pytest.fixture
def timm_export():
    found = pytest.importorskip("timm.utils.onnx", reason="needs the extra models: pip install 'onnxpatch[models]'")
    return found.onnx_export


def right(file: Path, model: torch.nn.Module, example: torch.Tensor) -> bool:
    report = onnxpatch.verify(file, model, (example,), dynamic_shapes=(IMAGE,), max_probes=8, guards=False)
    assert len({tuple(check.sizes.values()) for check in report.checks}) > 4
    return report.ok


def test_timm_by_tracing(tmp_path, timm_export):
    """A ViT whose position table is resized with antialias: refused without the kit."""
    import timm

    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=64, embed_dim=24, depth=1, num_heads=2, num_classes=5, dynamic_img_size=True
    ).eval()
    torch.nn.init.normal_(model.pos_embed)
    example, file = torch.randn(2, 3, 64, 96), tmp_path / "vit.onnx"
    with onnxpatch.patched(model):
        timm_export(model, str(file), example, dynamic_size=True, opset=18)
    assert right(file, model, example)
    with pytest.raises(torch.onnx.errors.UnsupportedOperatorError, match="_upsample_bicubic2d_aa"):
        timm_export(model, str(file), example, dynamic_size=True, opset=18)


@pytest.mark.slow  # fourteen seconds; test_timm_by_tracing stays
def test_timm_by_torch_export(tmp_path, timm_export):
    """A position table with a shortcut at its native size: wrong at every other size without the kit."""
    from examples.position_table import model as backbone

    model, example, file = backbone(), torch.randn(2, 3, 64, 64), tmp_path / "backbone.onnx"
    timm_export(model, str(file), example, dynamic_size=True, use_dynamo=True, opset=18)
    assert not right(file, model, example)
    with onnxpatch.patched(model):
        timm_export(model, str(file), example, dynamic_size=True, use_dynamo=True, opset=18)
    assert right(file, model, example)


@pytest.mark.parametrize("dynamo", [False, True], ids=["trace", "dynamo"])
def test_an_exporter_that_copies_the_model_first(tmp_path, dynamo):
    """The copy's own table is what the graph holds, and the original is what the patches were planned for."""
    from examples.position_table import SIZES
    from examples.position_table import model as backbone

    model, example, file = backbone(), torch.randn(2, 3, 64, 64), tmp_path / "copy.onnx"
    how = {"dynamo": True, "dynamic_shapes": SIZES} if dynamo else {"dynamo": False, "dynamic_axes": {"in": IMAGE}}
    with onnxpatch.patched(model) as patched:
        copied = copy.deepcopy(model)
        with torch.no_grad():
            copied.positions.mul_(2)
        torch.onnx.export(copied, (example,), str(file), input_names=["in"], opset_version=18, verbose=False, **how)
        assert patched.scope.model is model
    fresh = backbone()
    with torch.no_grad():
        fresh.positions.mul_(2)
    assert right(file, fresh, example)
    assert not right(file, model, example)


class Enlarged(torch.nn.Module):
    """A smooth resize: the TorchScript exporter has no operator for antialias."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = (2 * x.shape[-2], 2 * x.shape[-1])
        return F.interpolate(x, size=size, mode="bilinear", antialias=True)


@pytest.mark.slow  # ten seconds; test_timm_by_tracing stays
def test_ultralytics(tmp_path, monkeypatch):
    """Its exporter copies the model, fuses layers and traces the copy: the stand-ins travel along."""
    monkeypatch.setenv("YOLO_OFFLINE", "true")
    monkeypatch.setenv("YOLO_CONFIG_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    ultralytics = pytest.importorskip(
        "ultralytics",
        reason="needs the extra models, and of the system libGL.so.1 for opencv",
        exc_type=ImportError,
    )
    logging.getLogger("ultralytics").setLevel(logging.ERROR)
    yolo = ultralytics.YOLO("yolov8n.yaml")
    model = yolo.model.eval()
    for i, layer in enumerate(model.model):
        if isinstance(layer, torch.nn.Upsample):
            smooth = Enlarged()
            smooth.f, smooth.i = layer.f, layer.i  # where the layer takes its input from, in their models
            model.model[i] = smooth

    def export() -> Path:
        return Path(yolo.export(format="onnx", imgsz=64, dynamic=True, simplify=False))

    with pytest.raises(torch.onnx.errors.UnsupportedOperatorError, match="_upsample_bilinear2d_aa"):
        export()
    with onnxpatch.patched(model):
        file = export()
    example = (torch.rand(1, 3, 64, 96),)
    report = onnxpatch.verify(
        file, model, example, dynamic_shapes=({0: "b", 2: "h", 3: "w"},), max_probes=8, guards=False,
        flatten=lambda output: [output[0]],
    )  # fmt: skip
    assert report.ok, str(report)
