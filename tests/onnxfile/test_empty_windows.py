"""Tensors of no elements: `flatten` of windows where a length is too short for one, and a write of no rows."""

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


class Repeated(torch.nn.Module):
    """Written into a part as long as data says, which may be none: a Reshape to sizes of which one is 0."""

    def forward(self, x, counts):
        rows = x.repeat_interleave(counts, dim=0)
        padded = x.new_zeros(1, rows.shape[0], x.shape[1])
        padded[0, : rows.shape[0]] = rows
        return padded


def test_no_row_is_written(tmp_path):
    given = (torch.rand(3, 4), torch.tensor([1, 2, 1]))
    none = (torch.rand(2, 4), torch.tensor([0, 0]))
    report = onnxpatch.export(Repeated(), given, tmp_path / "m.onnx", data=[none], exporter="trace", attempts="asked",
                              dynamic_shapes=({0: "n"}, {0: "n"}))  # fmt: skip
    assert report.ok
