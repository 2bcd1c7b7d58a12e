"""scan, each and while_loop: a plain loop in eager, one Scan or Loop in the graph, right for every number of rounds."""

from __future__ import annotations

import copy

import onnx
import pytest
import torch
from torch import nn

import onnxpatch
from tests.exporting import export, run, wrong

pytestmark = pytest.mark.exports

ROWS = ({0: "rows"},)


class Decay(nn.Module):
    def forward(self, x):
        step = onnxpatch.scan(lambda carry, row: (carry * 0.5 + row, carry + row))
        last, outs = step(torch.zeros(4), x)
        return last, outs


class Weighted(nn.Module):
    """Rows of two tensors at once."""

    def forward(self, x, weights):
        step = onnxpatch.scan(lambda carry, row: (carry * row[1] + row[0], carry * 2))
        last, outs = step(torch.zeros(4), (x, weights))
        return last, outs


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 6)

    def forward(self, x):
        def step(hidden, row):
            hidden = self.cell(row, hidden)
            return hidden, hidden

        return onnxpatch.scan(step)(x.new_zeros(2, 6), x)[1]


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x):
        return onnxpatch.each(lambda row: self.inner(row).softmax(-1))(x)


class Halve(nn.Module):
    def forward(self, x):
        return onnxpatch.while_loop(lambda now: now.abs().max() > 1)(lambda now: now / 2)(x)


class Count(nn.Module):
    def forward(self, x, rounds):
        body = onnxpatch.while_loop(lambda i, y: i < rounds)(lambda i, y: (i + 1, torch.tanh(y + x)))
        return body(torch.zeros((), dtype=torch.int64), x)[1]


class Nested(nn.Module):
    """A loop in each round of another one, which reads the outer round's number."""

    def forward(self, x):
        def outer(i, y):
            inner = onnxpatch.while_loop(lambda j, z: j <= i)(lambda j, z: (j + 1, z * 0.5 + x + i))
            return i + 1, inner(torch.zeros((), dtype=torch.int64), y)[1]

        return onnxpatch.while_loop(lambda i, y: i < 3)(outer)(torch.zeros((), dtype=torch.int64), x)[1]


CASES = [
    (Decay, [(torch.rand(3, 4),), (torch.rand(7, 4),), (torch.rand(1, 4),)], ROWS),
    (Weighted, [(torch.rand(n, 4), torch.rand(n)) for n in (3, 7, 1)], ({0: "rows"}, {0: "rows"})),
    (Cell, [(torch.rand(3, 2, 4),), (torch.rand(8, 2, 4),)], ROWS),
    (Rows, [(torch.rand(3, 4),), (torch.rand(5, 4),)], ROWS),
    (Halve, [(torch.rand(3, 4) * 4,), (torch.rand(3, 4) * 0.1,), (torch.rand(5, 4) * 100,)], ROWS),
    (Nested, [(torch.rand(3, 4),), (torch.rand(5, 4),)], ROWS),
    (Count, [(torch.rand(3, 4), torch.tensor(3)), (torch.rand(2, 4), torch.tensor(0))], (*ROWS, None)),
]


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
@pytest.mark.parametrize(("cls", "inputs", "dynamic"), CASES, ids=[case[0].__name__ for case in CASES])
def test_right_for_every_number_of_rounds(cls, inputs, dynamic, exporter: str) -> None:
    model = cls().eval()
    with onnxpatch.patched(model, branches=True, exporter=exporter):
        file = export(model, inputs[0], exporter, dynamic)
    for given in inputs:
        with torch.no_grad():
            wanted = model(*copy.deepcopy(given))
        assert wrong(run(file, given), wanted, 1e-4) is None


class DecayThenBranch(nn.Module):
    def forward(self, x):
        last, outs = onnxpatch.scan(lambda carry, row: (carry * 0.5 + row, carry + row))(torch.zeros(4), x)
        return outs * 2 if last.sum() > 0 else outs - 1


class HalveThenBranch(nn.Module):
    def forward(self, x):
        now = onnxpatch.while_loop(lambda now: now.abs().max() > 1)(lambda now: now / 2)(x)
        return now * 2 if now.sum() > 0 else now - 1


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
@pytest.mark.parametrize("cls", [DecayThenBranch, HalveThenBranch])
def test_both_sides_of_a_later_branch_share_one_loop(cls, exporter: str) -> None:
    model = cls().eval()
    with onnxpatch.patched(model, branches=True, exporter=exporter):
        file = export(model, (torch.rand(3, 4) * 4,), exporter, ROWS)
    assert sum(node.op_type in ("Scan", "Loop") for node in onnx.load_from_string(file).graph.node) == 1
    for given in (torch.rand(5, 4) * 3, -torch.rand(2, 4) * 3):
        assert wrong(run(file, (given,)), model(given), 1e-4) is None
