"""Attention that a model writes out becomes one node, where nothing but its result is read."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import onnxpatch
from onnxpatch.onnxfile.attention_nodes import name_attention
from onnxpatch.onnxfile.graph import operator_counts

pytestmark = pytest.mark.exports


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
        if self.words == "mask of -inf":
            scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
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


LOWEST = torch.finfo(torch.float32).min
MASKS = {
    "keys": lambda s, keep: s.masked_fill(~keep[:, None, None], LOWEST),
    "queries and keys": lambda s, keep: torch.where((keep[:, None] & keep[..., None])[:, None], s, -1e9),
    "causal": lambda s, keep: s.masked_fill(torch.ones_like(keep[0] & keep[0][:, None]).triu(1), -1e4),
    "added": lambda s, keep: s + torch.where(keep[:, None, None], 0.0, LOWEST),
}


class Masked(torch.nn.Module):
    """Two layers that share a mask, whose rows may see no key."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words
        self.layers = torch.nn.ModuleList(torch.nn.Linear(12, 12) for _ in range(6))

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        batch, length, _ = x.shape
        for number in (0, 3):
            q, k, v = (layer(x).view(batch, length, 3, 4).transpose(1, 2) for layer in self.layers[number : number + 3])
            weights = MASKS[self.words](q * 0.5 @ k.transpose(-2, -1), keep).softmax(-1)
            x = x + (weights @ v).transpose(1, 2).reshape(batch, length, 12)
        return x


@pytest.mark.parametrize("operators", ["portable", "onnxruntime"])
@pytest.mark.parametrize("words", MASKS)
def test_a_mask_is_added_and_is_right_for_queries_that_see_no_key(words, operators, tmp_path):
    import onnx
    import onnxruntime

    opset, path, model = 18 if operators == "onnxruntime" else 23, tmp_path / "m.onnx", Masked(words).eval()
    example = (torch.randn(2, 5, 12), torch.ones(2, 5, dtype=torch.bool))
    axes = {"x": {0: "batch", 1: "length"}, "keep": {0: "batch", 1: "length"}}
    torch.onnx.export(
        model, example, str(path), dynamo=False, input_names=list(axes), dynamic_axes=axes, opset_version=18
    )  # fmt: skip
    proto = onnx.load(path)
    proto.opset_import[0].version = opset  # its operators are the same in 23
    onnx.save(proto, path)
    assert name_attention(path, operators) == 2
    left = operator_counts(onnx.load(path))
    assert left["Softmax"] == 0 and left["MatMul"] == 6
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for batch, length in ((3, 7), (1, 2)):
        x, keep = torch.randn(batch, length, 12), torch.rand(batch, length) > 0.4
        keep[0] = False
        with torch.no_grad():
            want = model(x, keep)
        got = session.run(None, {"x": x.numpy(), "keep": keep.numpy()})[0]
        torch.testing.assert_close(torch.from_numpy(got), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("words", ["mask of -inf", "returned"])
def test_a_mask_of_inf_and_weights_that_are_read_leave_it_as_it_is(words):
    assert said(exported(words, opset_version=23)) == []


def test_an_opset_without_the_node_leaves_it_as_it_is():
    assert said(exported("einsum")) == []
