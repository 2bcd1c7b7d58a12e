"""A number near 0 or 1 stays in the graph under dynamo: onnxscript's rewriter takes it for 0 or 1."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import onnxpatch

pytestmark = pytest.mark.exports


class _Near(torch.nn.Module):
    """A mean whose weights may all be 0, a factor of nearly 1, and a sum inside of a function of torch."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(n, 3) of positive numbers to the same, twice, and one."""
        loss = functional.poisson_nll_loss(x, x + 1, log_input=False, reduction="none")
        return x * 0 / (x * 0 + 1e-12), (x * 1.000004 - x) * 1e6, loss


def test_a_small_number_is_added_under_dynamo() -> None:
    x = torch.tensor([[0.0, 1e-9, 1.0], [2.0, 1e-30, 3.0]])
    report = onnxpatch.export(_Near(), (x,), None, dynamic_shapes=({0: "n"},), exporter="dynamo")
    assert report.ok, report
