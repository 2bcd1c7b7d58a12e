"""Attention that a model writes out becomes one node, where nothing but its result is read."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import onnxpatch


class Written(torch.nn.Module):
    """(batch, length, 12) in three heads, in the words of one author or another."""

    def __init__(self, words: str, heads: int = 3) -> None:
        super().__init__()
        self.words, self.heads = words, heads
        self.qkv = torch.nn.Linear(12, 36)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        if self.words == "einsum":
            scores = torch.einsum("b h i d, b h j d -> b h i j", q, k) * 0.5
        elif self.words == "division":
            scores = q @ k.transpose(-2, -1) / 2.0
        else:
            scores = torch.matmul(q, k.permute(0, 1, 3, 2))
        if self.words == "mask":
            scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)
        result = torch.matmul(weights, v).transpose(1, 2).flatten(2)
        return (result, weights) if self.words == "returned" else result


def exported(words, **options):
    model, free = Written(words).eval(), ({0: "batch", 1: "length"},)
    report = onnxpatch.export(model, torch.randn(2, 5, 12), dynamic_shapes=free, attempts="asked", **options)
    assert report.ok
    return report


def said(report):
    return [note for note in report.notes if "attention" in note]


@pytest.mark.parametrize("words", ["einsum", "division", "no scale"])
def test_from_opset_23_on_it_is_one_node(words):
    assert said(exported(words, opset_version=23)) == ["one node for each attention that the model writes out: 1"]


def test_with_operators_of_onnxruntime_it_is_one_node_at_any_opset(tmp_path):
    import onnx

    exported("einsum", operators="onnxruntime", f=tmp_path / "m.onnx")
    proto = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(proto)
    left = {node.op_type for node in proto.graph.node}
    assert "MultiHeadAttention" in left and not {"Softmax", "Transpose", "Mul"} & left


@pytest.mark.parametrize("words", ["mask", "returned"])
def test_a_mask_and_weights_that_are_read_leave_it_as_it_is(words):
    assert said(exported(words, opset_version=23)) == []


def test_an_opset_without_the_node_leaves_it_as_it_is():
    assert said(exported("einsum")) == []
