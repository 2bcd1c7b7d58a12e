"""NumPy's arrays and numbers of sizes, at sizes that the exporter never saw."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import onnxpatch

pytestmark = pytest.mark.exports


class Made(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        n = x.shape[1]
        first = x[:, : int(np.ceil(n / 3))].cumsum(1) / np.sqrt(n)
        order = np.argsort(np.abs(np.arange(n) - n // 2), kind="stable")
        longest = x.new_ones(int(np.maximum(n, 4))) * np.array([n, 2]).sum()
        angles = np.arange(n, dtype=np.float32)[:, None] * np.sqrt(np.arange(n // 2 + 1))
        rows = torch.from_numpy(np.stack([np.sin(angles), np.cos(angles)]).sum(0).astype(np.float32)).sum(1)
        hidden = torch.as_tensor(np.triu(np.ones((2, n)), k=1).astype("uint8"), dtype=torch.bool)
        return (
            first,
            (rows * x).masked_fill(hidden, -9),
            x[:, torch.from_numpy(order)] @ torch.from_numpy(np.eye(n, dtype=np.float32)),
            longest,
        )


@pytest.mark.parametrize("exporter", ["trace", pytest.param("dynamo", marks=pytest.mark.slow)])
def test_numbers_orders_and_matrices(exporter):
    data = [(torch.randn(2, n),) for n in (6, 3, 11)]
    report = onnxpatch.export(
        Made(), data[0], exporter=exporter, dynamic_shapes=({1: "n"},), data=data[1:], attempts="asked"
    )
    assert report.ok and "arrays-of-sizes" in {one["patch"] for one in report.plan}
