"""Errors in words of other libraries are told with what to do, or no longer raised."""

import errno
from pathlib import Path

import pytest
import torch
from torch import nn

import onnxpatch
from tests.layers import Computes

pytestmark = pytest.mark.exports


def test_what_others_say_is_told_with_what_to_do():
    model = Computes(lambda x: x * {4: 2.0}.get(x.shape[0], 1.0)).eval()
    with pytest.raises(onnxpatch.ExportError, match=r"a line of the model fixes that size"):
        onnxpatch.export(model, (torch.ones(4, 3),), dynamic_shapes=(({0: "b"},),), attempts="asked")


class Masked(nn.Module):
    """As LongT5's encoder: without a mask it makes one in eager alone."""

    def forward(self, x, mask=None):
        if mask is None and not torch.compiler.is_compiling():
            mask = x.new_zeros((x.shape[0] + 3) // 4, 1)
        return torch.cat([x.new_zeros(1, 1) if mask is None else mask, x.new_zeros((x.shape[0] + 3) // 4, 1)], 1)


def test_a_size_outside_of_its_range_is_told_with_what_to_do():
    with pytest.raises(onnxpatch.ExportError, match=r"(?s)not in VR\[.*give the arguments"):
        onnxpatch.export(Masked().eval(), (torch.ones(21, 3),), dynamic_shapes={"x": {0: "n"}}, attempts="asked")


class Runs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, layer):
        ctx.save_for_backward(x)
        return layer(x) if not any(ctx.needs_input_grad) else x


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(x, by=2):
        return x * by

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass


class Written(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.from_numpy(x.numpy() * 2)

    @staticmethod
    def symbolic(graph, x):
        return graph.op("Add", x, x)


class Reversible(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return Runs.apply(x, self.layer) + Scaled.apply(Written.apply(x))


def test_an_autograd_function_may_read_parameters():
    """Plain ends in `unordered_map::at`."""
    report = onnxpatch.export(Reversible().eval(), (torch.ones(4, 3),), dynamic_shapes=({0: "b"},), exporter="trace",
                              attempts="asked")  # fmt: skip
    assert report.ok and torch.autograd.Function.apply.__func__.__name__ == "apply" and Runs.apply.__self__ is Runs


def test_what_the_caller_handles_is_not_the_reason() -> None:
    class Wide(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.eig(x).eigenvalues.real

    try:
        raise KeyError("of the caller")
    except KeyError as handled:
        with pytest.raises(onnxpatch.ExportError) as refused:
            onnxpatch.export(Wide().eval(), torch.randn(3, 3), exporter="trace")
        assert "of the caller" not in str(refused.value) and handled.__context__ is None


def test_a_full_disk_that_the_caller_handles_is_not_said_again(tmp_path: Path) -> None:
    try:
        raise OSError(errno.ENOSPC, "No space left on device")
    except OSError:
        with pytest.raises(onnxpatch.ExportError):
            onnxpatch.export(
                Computes(torch.linalg.eig).eval(), torch.randn(3, 3), tmp_path / "m.onnx", exporter="trace"
            )
