"""Under trace, sizes that no input changes are known."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import onnxpatch
from onnxpatch.formulas.symbolic import static_number

pytestmark = pytest.mark.exports

KNOWN: list[int | float | bool | None] = []


class Asks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if torch.jit.is_tracing():
            KNOWN[:] = [static_number(x.shape[1]), static_number(x.shape[1] // 2), static_number(x.shape[0])]
        return x + 1


def test_which_sizes_no_input_changes(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    onnxpatch.export(Asks().eval(), (torch.ones(2, 6),), file, dynamic_shapes=({0: "b"},), exporter="trace")
    assert KNOWN == [6, 3, None]
