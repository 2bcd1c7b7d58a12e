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


class AsksAfterChoosing(nn.Module):
    """Sizes behind rows that data names, and behind a cut at a length that data says."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor, length: Tensor) -> Tensor:
        rows, cut = self.norm(x[x[:, 0, 0, 0] > 0]), x[:, :, : int(length)]
        if torch.jit.is_tracing():
            KNOWN[:] = [static_number(size) for size in (*rows.shape, *cut.shape)]
        return rows.sum() + cut.sum((2, 3))


def test_an_unknown_length_leaves_the_other_sizes_known() -> None:
    x, axes = torch.ones(2, 4, 3, 5), ({0: "b"}, None)
    onnxpatch.export(AsksAfterChoosing().eval(), (x, torch.tensor(2)), dynamic_shapes=axes, exporter="trace")
    assert KNOWN == [None, 4, 3, 5, None, 4, None, 5]


class AsksAfterWindowsOfWindows(nn.Module):
    """The expression of its size is five times as long with each round: a million parts."""

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        for _ in range(9):
            n = (n // 4 + 1) * (n // (n // 4 + 1)) + n // 3
            x = torch.cat([x, x])[:n]
        if torch.jit.is_tracing():
            KNOWN[:] = [static_number(size) for size in (n, n - x.shape[0], x.shape[1])]
        return x + 1


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_long_expressions_are_not_worked_out() -> None:
    model, x = AsksAfterWindowsOfWindows().eval(), torch.ones(64, 2)
    onnxpatch.export(model, (x,), dynamic_shapes=({0: "b"},), exporter="trace", check=False, max_seconds=60)
    assert KNOWN == [None, 0, 2]
