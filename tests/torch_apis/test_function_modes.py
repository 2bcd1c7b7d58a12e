"""Nodes that a symbolic function cannot write by itself: with an omitted input, and with sides of their own."""

import io

import onnx
import onnxruntime
import pytest
import torch

from onnxpatch._torch.function_modes import absent_input, if_node

pytestmark = pytest.mark.exports


class Bounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clamp(max=0.5)

    @staticmethod
    def symbolic(graph, x):
        highest = graph.op("Constant", value_t=torch.tensor(0.5))
        return graph.op("Clip", x, absent_input(graph), highest)


class Clipped(torch.nn.Module):
    def forward(self, x):
        return Bounded.apply(x)


def test_an_input_in_the_middle_is_left_out_of_the_node():
    file = io.BytesIO()
    torch.onnx.export(Clipped(), (torch.randn(3),), file, dynamo=False)
    model = onnx.load_from_string(file.getvalue())
    (clip,) = (node for node in model.graph.node if node.op_type == "Clip")
    assert clip.input[1] == "" and clip.input[2]
    onnx.checker.check_model(model)


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x / 2

    @staticmethod
    def symbolic(graph, x):
        positive = graph.op(
            "Greater", graph.op("ReduceSum", x, keepdims_i=0), graph.op("Constant", value_t=torch.tensor(0.0))
        )
        two = lambda inner: inner.op("Constant", value_t=torch.tensor(2.0))  # noqa: E731
        sides = [lambda inner: inner.op("Div", x, two(inner)), lambda inner: inner.op("Mul", x, two(inner))]
        return if_node(graph, positive, sides).setType(x.type())


class Chosen(torch.nn.Module):
    def forward(self, x):
        return Halved.apply(x)


def test_an_if_has_its_nodes_in_its_sides():
    file = io.BytesIO()
    torch.onnx.export(Chosen(), (torch.ones(3),), file, dynamo=False)
    run = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    (name,) = (each.name for each in run.get_inputs())
    for x in (torch.ones(3), -torch.ones(3)):
        (found,) = run.run(None, {name: x.numpy()})
        assert found.tolist() == (x / 2 if x.sum() > 0 else x * 2).tolist()
    kinds = [node.op_type for node in onnx.load_from_string(file.getvalue()).graph.node]
    assert "If" in kinds and not {"Div", "Mul"} & set(kinds)
