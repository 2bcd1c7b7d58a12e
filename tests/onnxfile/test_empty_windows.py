"""`flatten` of windows where a length is too short for one: of no elements, -1 is no size in particular."""

import pytest
import torch

import onnxpatch
from tests.layers import Computes

pytestmark = pytest.mark.exports

EXPORTERS = ("dynamo", "trace")


def whole_windows(x):
    return x[:, : x.shape[1] // 8 * 8]


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.stack([whole_windows(x), whole_windows(x) * 2], -1).flatten(-2),
        lambda x: whole_windows(x).repeat_interleave(2, -1),
    ],
    ids=["flatten", "repeat_interleave"],
)
def test_a_length_without_a_whole_window(exporter, function):
    shapes, model = ({0: "batch", 1: "length"},), Computes(function).eval()
    report = onnxpatch.export(model, (torch.randn(2, 16, 4),), exporter=exporter, dynamic_shapes=shapes)
    assert report.ok and not report.bounds
