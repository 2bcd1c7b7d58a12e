"""Zeros around what MaxPool reads: onnxruntime takes them for pads of its own, which are less than every number."""

import pytest
import torch
from torch.nn import functional as F

import onnxpatch
from tests.layers import Computes

pytestmark = pytest.mark.exports

EXPORTERS = ("dynamo", "trace")
SHAPES = ({0: "batch", 2: "height", 3: "width"},)


def exported(function, exporter):
    example = (-1 - torch.rand(2, 3, 8, 6),)
    return onnxpatch.export(Computes(function).eval(), example, exporter=exporter, dynamic_shapes=SHAPES, max_probes=6)


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_window_of_zeros_and_negative_numbers(exporter, dtype):
    report = exported(lambda x: F.max_pool2d(F.pad(x.to(dtype), (1, 1, 1, 1)), 3, 2), exporter)
    assert report.ok and any("-0.0: 1" in note for note in report.notes)


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.max_pool2d(F.pad(x.relu(), (1, 1, 1, 1)), 3, 2),
        lambda x: F.max_pool2d(F.pad(x, (1, 1, 1, 1), value=-9.0), 3, 2),
        lambda x: F.max_pool2d(F.pad(x, (1, 1, 1, 1), mode="circular"), 3, 2),
    ],
    ids=["nothing below zero", "another number", "another mode"],
)
def test_what_is_right_stays_as_it_is(exporter, function):
    report = exported(function, exporter)
    assert report.ok and not any("-0.0" in note for note in report.notes)
