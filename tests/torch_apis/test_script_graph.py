"""A value of a TorchScript graph that stands for an omitted input becomes an empty input name in the file."""

import io

import onnx
import torch

from onnxpatch._torch.script_graph import absent_input


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
