"""Work that an `if` saves, or a table that it keeps: experts without a token, buffers that grow, first rounds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import onnxpatch

pytestmark = pytest.mark.exports


class Experts(nn.Module):
    """Each token by the expert that it is nearest to, in the ways in which models leave out an expert without one."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        taken, out = x.argmax(1), torch.zeros_like(x)
        for number, expert in enumerate(self.experts[:3]):
            mask = taken == number
            if mask.any():
                given = x[mask]
                out[mask] += expert(given)
        return self.in_order(x, self.by_rows(x, taken, self.by_places(x, taken, out)))

    def in_order(self, x: Tensor, out: Tensor) -> Tensor:
        chosen = x.topk(2)[1]
        counts = torch.bincount(chosen.flatten(), minlength=4).tolist()
        for number, expert in enumerate(self.experts[:4]):
            if counts[number] == 0:
                continue
            row, _ = torch.where(chosen == number)
            out[row] += expert(x[row])
        return out

    def by_places(self, x: Tensor, taken: Tensor, out: Tensor) -> Tensor:
        for number, expert in enumerate(self.experts[2:]):
            mask = taken == number
            if not mask.any():
                continue
            (rows,) = torch.where(mask)
            out.index_add_(0, rows, expert(x[rows]))
        return out

    def by_rows(self, x: Tensor, taken: Tensor, out: Tensor) -> Tensor:
        for number, expert in enumerate(self.experts[1:3]):
            mask = taken == number + 1
            if mask.sum() == 0:
                continue
            rows = mask.nonzero().squeeze(-1)
            out[rows] = out[rows] + expert(x[rows])
        return out


class Grown(nn.Module):
    """A mask, and a table kept on the model, both longer than at first for a longer input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(3, 3).tril())
        self.table = torch.zeros(1, 4)
        self.extend(torch.zeros(3, 4))

    def extend(self, x: Tensor) -> None:
        if self.table.size(0) >= x.size(0) * 2 - 1:
            if self.table.dtype != x.dtype:
                self.table = self.table.to(x.dtype)
            return
        self.table = torch.arange(1 - x.size(0), x.size(0))[:, None] / torch.ones(4)

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        if self.mask.shape[0] < n:
            self.mask = torch.ones(n, n).tril()
        self.extend(x)
        middle = self.table.size(0) // 2
        return self.mask[:n, :n] @ x + self.table[middle - n + 1 : middle + n].sum(0)


class Steps(nn.Module):
    """Loops whose first round does something else, as their number says."""

    def forward(self, x: Tensor) -> Tensor:
        state, outs = torch.zeros(4), []
        for i in range(x.shape[0]):
            state = x[i] if i == 0 else state * 0.5 + x[i]
            if i > 0:
                state = state.tanh()
            outs.append(state)
        for i, row in enumerate(x):
            state = state + (row if i < 1 else row * 0.3 * i)
        return torch.stack(outs) + state


@pytest.mark.parametrize("exporter", [pytest.param("dynamo", marks=pytest.mark.slow), "trace"])
@pytest.mark.parametrize("made", [Experts, Grown, Steps])
def test_the_work_is_in_the_graph(made: type[nn.Module], exporter: str, tmp_path: Path) -> None:
    model, path = made().eval(), tmp_path / "m.onnx"
    rows = torch.randn(6, 4)
    onnxpatch.export(
        model, (rows,), path, dynamic_shapes=({0: "n"},), exporter=exporter, attempts="asked", branches=made is Steps
    )
    session = onnxpatch.Session(path)
    for x in (torch.arange(4.0)[None], torch.randn(2, 4), -rows.abs(), torch.randn(23, 4)):
        torch.testing.assert_close(session(x), model(x), rtol=1e-4, atol=1e-5)
