"""A normalization that a model writes out gets one kernel, where nothing but its result is read."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

import onnxpatch
from onnxpatch.onnxfile.graph import operator_counts
from onnxpatch.onnxfile.norm_nodes import name_norms

pytestmark = pytest.mark.exports

EPS = 1e-3


def mean(x: Tensor) -> Tensor:
    return x.mean(-1, keepdim=True)


def deviation(x: Tensor) -> Tensor:
    return torch.sqrt(mean((x - mean(x)) ** 2) + EPS)


LAYER = {
    "division": lambda x, w, b: (x - mean(x)) / deviation(x) * w + b,
    "reciprocal": lambda x, w, b: w * ((x - mean(x)) * torch.rsqrt(mean((x - mean(x)).pow(2)) + EPS)) + b,
    "variance": lambda x, w, b: (x - mean(x)) / (EPS + x.var(-1, keepdim=True, unbiased=False)).sqrt() * w,
    "no weight": lambda x, w, b: (x - mean(x)) / deviation(x),
    "no weight, a bias": lambda x, w, b: (x - mean(x)) / deviation(x) + b,
}
RMS = {
    "reciprocal": lambda x, w, b: w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS)),
    "product": lambda x, w, b: x / torch.sqrt(mean(x * x) + EPS) * w,
}
OTHER = {
    "another axis": lambda x, w, b: x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + EPS) * w,
    "eps outside": lambda x, w, b: (x - mean(x)) / (x.var(-1, keepdim=True, unbiased=False).sqrt() + EPS) * w,
    "parts are read": lambda x, w, b: (x - mean(x)) / deviation(x) * w + mean(x),
    "the mean of something else": lambda x, w, b: (x - mean(x)) / deviation(x + x.abs()) * w,
    "a size of one": lambda x, w, b: mean(x) * torch.rsqrt(mean(mean(x).pow(2)) + EPS) * w,
}


class Norm(torch.nn.Module):
    def __init__(self, written, width=6):
        super().__init__()
        self.written = written
        self.weight, self.bias = (torch.nn.Parameter(torch.rand(width) + 0.5) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.written(x + 1, self.weight, self.bias) * 2


def traced(model, path, opset=18):
    axes = {"x": {0: "batch", 1: "length"}}
    torch.onnx.export(
        model, (torch.randn(2, 5, 6),), str(path), dynamo=False, input_names=["x"], dynamic_axes=axes,
        opset_version=opset,
    )  # fmt: skip
    return path


def answers_as_eager(model, path):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for x in (torch.randn(3, 7, 6), torch.randn(1, 1, 6) * 100 + 50, torch.zeros(2, 2, 6)):
        with torch.no_grad():
            np.testing.assert_allclose(session.run(None, {"x": x.numpy()})[0], model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("words", LAYER)
def test_a_layer_norm_is_one_node(words, tmp_path):
    model = Norm(LAYER[words])
    path = traced(model, tmp_path / "m.onnx")
    assert name_norms(path) == 1
    proto = onnx.load(path)
    onnx.checker.check_model(proto, full_check=True)
    assert operator_counts(proto)["LayerNormalization"] == 1 and not operator_counts(proto)["ReduceMean"]
    answers_as_eager(model, path)


@pytest.mark.parametrize("words", RMS)
def test_an_rms_norm_is_what_onnxruntime_fuses(words, tmp_path):
    model, options = Norm(RMS[words]), onnxruntime.SessionOptions()
    path = traced(model, tmp_path / "m.onnx")
    assert name_norms(path) == 1
    onnx.checker.check_model(onnx.load(path), full_check=True)
    answers_as_eager(model, path)
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    assert operator_counts(onnx.load(tmp_path / "optimized.onnx"))["SimplifiedLayerNormalization"] == 1


@pytest.mark.parametrize("words", OTHER)
def test_what_is_no_norm_or_whose_parts_are_read_is_left(words, tmp_path):
    path = traced(Norm(OTHER[words]).eval(), tmp_path / "m.onnx")
    before = onnx.load(path).graph
    assert name_norms(path) == 0
    assert onnx.load(path).graph == before


def test_half_precision_and_early_opsets_are_left(tmp_path):
    model = Norm(LAYER["division"])
    assert name_norms(traced(model, tmp_path / "16.onnx", opset=16)) == 0
    torch.onnx.export(model.double(), (torch.randn(2, 5, 6).double(),), str(tmp_path / "wide.onnx"), dynamo=False)
    assert name_norms(tmp_path / "wide.onnx") == 0


class Both(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*map(Norm, (*LAYER.values(), *RMS.values())))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


@pytest.mark.parametrize(("opset", "count"), [(18, 7), (23, 6)])  # torch itself writes RMSNormalization at 23
def test_an_export_by_dynamo_says_how_many(opset, count, tmp_path):
    report = onnxpatch.export(
        Both().eval(), torch.randn(2, 5, 6), tmp_path / "m.onnx", dynamic_shapes=({0: "batch", 1: "length"},),
        opset_version=opset, attempts="asked",
    )  # fmt: skip
    assert report.ok and f"one kernel for each normalization that the model writes out: {count}" in report.notes
    left = operator_counts(onnx.load(tmp_path / "m.onnx"))
    assert left["LayerNormalization"] == 5 and left["RMSNormalization"] == (2 if opset == 23 else 0)
