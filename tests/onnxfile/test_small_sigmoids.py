"""The logarithm of a sigmoid is eager's where onnxruntime's Sigmoid is 0; another Sigmoid stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import onnxpatch
from tests.layers import Computes

pytestmark = pytest.mark.exports
X = torch.tensor([[-87.0, -40.0, -18.5], [-16.5, -1.0, 30.0]])


def _entropy(x: Tensor) -> Tensor:
    chance = x.sigmoid()
    return -chance * torch.log(chance)


@pytest.mark.parametrize(
    "computed",
    [
        lambda x: x.sigmoid().log(),
        lambda x: functional.binary_cross_entropy(x.sigmoid(), (x > -17).float(), reduction="none"),
        lambda x: torch.log(x.sigmoid().clamp(min=1e-12).t()),
        _entropy,
    ],
)
def test_the_logarithm_of_a_sigmoid(computed: Callable[[Tensor], Tensor]) -> None:
    report = onnxpatch.export(Computes(computed), (X,), None, dynamic_shapes=({0: "n"},), exporter="trace")
    assert report.ok and "sigmoids below a logarithm" in "".join(report.notes), report


def test_a_sigmoid_that_no_logarithm_reads_stays() -> None:
    model = Computes(lambda x: torch.log(torch.linalg.vector_norm(x, dim=1)) + x[:, 0].sigmoid())
    report = onnxpatch.export(model, (X,), None, dynamic_shapes=({0: "n"},), exporter="trace")
    assert report.ok and "sigmoids" not in "".join(report.notes), report
