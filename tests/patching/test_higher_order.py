"""torch.cond and its kin, which plain torch.onnx.export(dynamo=True) gets right, come out right patched too."""

import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch._torch.function_modes import modes_kept
from tests.exporting import export, run, wrong

pytestmark = pytest.mark.exports

SLOW = pytest.mark.slow


def cond(x):
    return torch.cond(x.sum() > 0, lambda x: x.cumsum(0) * 2, lambda x: x.cos(), (x,))


def while_loop(x):
    from torch._higher_order_ops import while_loop

    return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5), (torch.tensor(0), x))[1]


def scan(x):
    from torch._higher_order_ops.scan import scan

    return scan(lambda carry, row: (carry + row, carry * row), torch.zeros(3), x, dim=0)[1]


def scan_of_two(x):
    from torch._higher_order_ops.scan import scan

    (last, most), outs = scan(lambda c, row: ((c[0] + row, c[1] * row), {"y": c[0] * 2}), (x[0] * 0, x[0] / 2), x)
    return last + most + outs["y"]


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


class BranchBeside(nn.Module):
    """A branch of Python beside one of torch's."""

    def forward(self, x):
        y = torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x.cos(), (x,))
        if y.mean() > 0.5:
            y = y - 1
        return y


@pytest.mark.parametrize(
    ("function", "branches"),
    [(cond, False), (while_loop, True), (scan_of_two, False), pytest.param(cond, True, marks=SLOW)],
)
def test_export_compares_them_too(function, branches):
    """In eager they are compiled by torch: what counts the arithmetic of a model must not be in their way."""
    model, x = Calling(function), torch.randn(4, 3)
    report = onnxpatch.export(model.eval(), (x,), dynamic_shapes=({0: "n"},), branches=branches)
    assert report.ok and len({check.sizes["n"] for check in report.checks}) > 2
    model(x)  # and can be called afterwards


def test_a_branch_of_python_beside_one_of_torch():
    model, x = BranchBeside().eval(), torch.rand(4, 3)
    assert onnxpatch.export(model, (x,), dynamic_shapes=({0: "n"},), branches=True).ok


def test_an_error_inside_of_vmap_leaves_no_level_of_it() -> None:
    with pytest.raises(ValueError, match="of the test"), modes_kept():
        torch._C._functorch._vmap_increment_nesting(3, "error")
        raise ValueError("of the test")
    assert torch.randn(2).shape == (2,)  # within vmap it is refused
