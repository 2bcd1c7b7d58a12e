"""The time that one graph takes beside another."""

from __future__ import annotations

import torch

from onnxpatch.onnxfile.runtime import times_as_long


def test_four_products_take_longer_than_one():
    x = torch.randn(200, 200)
    assert times_as_long(lambda: x @ x @ x @ x @ x, lambda: x @ x) > 2
