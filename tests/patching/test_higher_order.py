"""torch.cond and its kin, which plain torch.onnx.export(dynamo=True) gets right, come out right patched too."""

import pytest
import torch
from torch import nn

import onnxpatch
from tests.exporting import export, run, wrong


def cond(x):
    return torch.cond(x.sum() > 0, lambda x: x.cumsum(0) * 2, lambda x: x.cos(), (x,))


def while_loop(x):
    from torch._higher_order_ops import while_loop

    return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5), (torch.tensor(0), x))[1]


def scan(x):
    from torch._higher_order_ops.scan import scan

    return scan(lambda carry, row: (carry + row, carry * row), torch.zeros(3), x, dim=0)[1]


def vmap(x):
    return torch.vmap(lambda row: row.softmax(0) * row.max())(x)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Calling(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x) + 1


@pytest.mark.parametrize("function", [cond, while_loop, scan, vmap, Doubled.apply])
def test_what_plain_export_gets_right_stays_right(function):
    model, x = Calling(function), torch.randn(4, 3)
    dynamic = ({0: "n"},)
    others = [torch.randn(6, 3), -torch.rand(5, 3), torch.rand(7, 3)]
    with onnxpatch.patched(model):
        file = export(model, (x,), "dynamo", dynamic)
    for other in others:
        assert wrong(run(file, (other,)), model(other), 1e-5) is None
