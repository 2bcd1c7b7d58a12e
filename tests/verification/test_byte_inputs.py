"""Inputs of bytes are given no number that they cannot have."""

from __future__ import annotations

import pytest
import torch

from onnxpatch.verification.aimed_data import _planted


@pytest.mark.parametrize("value", [-2.0, 300.0])
def test_a_byte_keeps_its_value_where_it_cannot_have_the_number(value: float) -> None:
    pixels = torch.arange(6, dtype=torch.uint8)
    assert torch.equal(_planted([pixels], value, (-2,))[0], pixels)


def test_a_byte_is_given_a_number_that_it_can_have() -> None:
    assert _planted([torch.zeros(6, dtype=torch.uint8)], 200.0, (-2,))[0].tolist() == [0, 0, 0, 0, 200, 0]
