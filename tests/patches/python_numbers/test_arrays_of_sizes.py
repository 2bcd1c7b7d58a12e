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


class Mirrored(nn.Module):
    """What lies beyond an end is mirrored there; with as many rows of a power of two as the length has at least."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        n = x.shape[1]
        places = np.abs(np.fmod(np.arange(-3, n + 3), 2 * n))
        spread = np.std(np.kron(np.arctan2(np.arange(n), 3.0), np.ones(2)).reshape(n, 2) ** 2, axis=0)
        return (
            x[:, torch.as_tensor(np.minimum(places, 2 * n - 1 - places))],
            x.new_ones(int(2 ** np.ceil(np.log(n + 1) / np.log(2)))),
            x.sum() + torch.as_tensor(spread).to(x.dtype),
        )


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
def test_angles_remainders_and_logarithms(exporter):
    args, shapes = (torch.randn(2, 6),), ({1: "n"},)
    assert onnxpatch.export(Mirrored(), args, exporter=exporter, dynamic_shapes=shapes, attempts="asked").ok
