"""Sizes that a file writes beside its values, and that do not hold at every size, stop no runtime."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch.onnxfile.runtime_forms import forget_merged_sizes

pytestmark = pytest.mark.exports

X = (torch.randn(2, 3, 8),)
DYNAMIC = ({0: "b", 2: "n"},)
OPTIONS = {"dynamic_shapes": DYNAMIC, "exporter": "dynamo", "attempts": "asked"}


class Gated(nn.Module):
    """Adds what was halved and doubled; eager takes a length of 1, which is broadcast, and even ones."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv1d(3, 3, 3, 1, 1), nn.ReLU())
        self.down, self.up = nn.Conv1d(3, 4, 3, 2, 1), nn.ConvTranspose1d(4, 3, 3, 2, 1, 1)
        self.last = nn.Sequential(nn.Conv1d(3, 3, 3, 1, 1), nn.InstanceNorm1d(3), nn.PReLU(), nn.Conv1d(3, 3, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.last(x * torch.sigmoid(self.up(self.down(x)) + x))


def test_a_size_that_is_broadcast_is_right_in_one_attempt(tmp_path: Path) -> None:
    model, file = Gated().eval(), tmp_path / "m.onnx"
    plain = tmp_path / "plain.onnx"
    torch.onnx.export(model, X, plain, dynamo=True, dynamic_shapes=DYNAMIC, verbose=False)
    assert onnxpatch.verify(plain, model, X, dynamic_shapes=DYNAMIC).wrong
    report = onnxpatch.export(model, X, file, **OPTIONS)
    assert report.ok and 1 in {check.sizes.get("n") for check in report.checks}
    session = onnxpatch.Session(file)
    for size in (1, 2, 8, 30):
        x = torch.randn(3, 3, size)
        assert torch.allclose(session(x), model(x), atol=1e-5)
    # Only the shapes are gone: what is computed is plain's.
    nodes = [[node.op_type for node in onnx.load(one).graph.node] for one in (file, plain)]
    assert sorted(nodes[0]) == sorted(nodes[1])


def test_what_is_right_keeps_its_shapes(tmp_path: Path) -> None:
    model, file = nn.Sequential(nn.Conv1d(3, 4, 3, 2, 1), nn.ReLU(), nn.Conv1d(4, 3, 1)).eval(), tmp_path / "m.onnx"
    assert onnxpatch.export(model, X, file, **OPTIONS).ok
    assert onnx.load(file).graph.value_info


@pytest.mark.parametrize(("left", "right", "merged"), [
    (["b", "n"], ["b", "2*(n//2)"], True), (["b", "n"], ["2*(n//2)"], True), (["b", "n"], ["b", "n"], False),
    (["b", "n"], [1, "n"], False), (["b", "n"], ["b", 1], False), (["n"], ["b", "n"], False),
])  # fmt: skip
def test_two_names_for_one_axis(left: list[object], right: list[object], merged: bool, tmp_path: Path) -> None:
    value, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    graph = onnx.helper.make_graph(
        [node("Relu", ["a"], ["c"]), node("Add", ["c", "b"], ["d"]), node("Relu", ["d"], ["e"]),
         node("Relu", ["e"], ["f"])], "g",
        [value("a", 1, left), value("b", 1, right)], [value("f", 1, None)],
        value_info=[value(name, 1, left) for name in "cde"],
    )  # fmt: skip
    file = tmp_path / "m.onnx"
    onnx.save(onnx.helper.make_model(graph), file)
    assert forget_merged_sizes(file) is merged
    assert [one.name for one in onnx.load(file).graph.value_info] == (["c"] if merged else ["c", "d", "e"])
    assert not forget_merged_sizes(file)  # nothing is left to forget: who asks again would do so for ever
