"""Group normalization without scale or shift, without places, with fixed sizes, and in half precision."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import onnxpatch
from tests.layers import Computes

pytestmark = pytest.mark.exports

SCALE, SHIFT = torch.rand(8), torch.rand(8)
CALLS = {
    "bare": lambda x: functional.group_norm(x, 2),
    "scaled": lambda x: functional.group_norm(x, 4, SCALE),
    "shifted": lambda x: functional.group_norm(x, 4, None, SHIFT, 1e-2),
    "one group": lambda x: torch.group_norm(x, 1, SCALE, SHIFT),
}


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
@pytest.mark.parametrize("call", CALLS)
def test_each_way_of_calling_it_is_right_at_other_sizes(call, exporter):
    x, free = torch.randn(2, 8, 5), ({0: "batch", 2: "length"},)
    report = onnxpatch.export(Computes(CALLS[call]).eval(), x, dynamic_shapes=free, exporter=exporter, attempts="asked")
    assert report.ok and [row["patch"] for row in report.plan] == ["group-norm"]


@pytest.mark.parametrize("shape", [(3, 8), (2, 8, 4, 3, 2)])
def test_fixed_sizes_of_any_rank(shape):
    assert onnxpatch.export(
        Computes(CALLS["one group"]).eval(), torch.randn(shape), opset_version=21, attempts="asked"
    ).ok


def test_half_precision_is_left_as_it_is():
    norm = torch.nn.GroupNorm(2, 8).half().eval()
    report = onnxpatch.export(norm, torch.randn(2, 8, 5).half(), check=False)
    assert report.plan == []
