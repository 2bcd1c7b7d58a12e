"""Models in half and double precision, under torch.set_default_dtype and under autocast, through both exporters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from einops.layers.torch import Rearrange
from torch import Tensor, nn
from torch.nn import functional as F

import onnxpatch

pytestmark = pytest.mark.exports

SIZES = ({0: "batch", 1: "length"},)


class Block(nn.Module):
    """(batch, length, 8) to the same: attention over heads of einops, a norm, an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.packed, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.split, self.merge = Rearrange("b n (t h d) -> t b h n d", t=3, h=2), Rearrange("b h n d -> b n (h d)")

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.split(self.packed(self.norm(x)))
        x = x + self.merge(F.scaled_dot_product_attention(query, key, value))
        return (self.out(F.silu(x)) / x.shape[1]).softmax(-1)


class Convolved(nn.Module):
    """(batch, 3, height, width): a convolution and a batch norm, whose statistics stay in float32 under autocast."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Cast(nn.Module):
    """A model under torch.autocast."""

    def __init__(self, model: nn.Module, dtype: torch.dtype = torch.float16) -> None:
        super().__init__()
        self.model, self.dtype = model, dtype

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=self.dtype):
            return self.model(x)


@pytest.fixture
def double_by_default() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def right(model: nn.Module, x: Tensor, dynamo: bool) -> bool:
    shapes = SIZES if x.dim() == 3 else ({0: "batch", 2: "height", 3: "width"},)
    report = onnxpatch.export(model.eval(), (x,), dynamic_shapes=shapes, dynamo=dynamo, attempts="asked")
    return report.ok and {check.status for check in report.checks} == {"right"}


EXPORTERS = pytest.mark.parametrize(
    "dynamo", [pytest.param(False, id="trace"), pytest.param(True, id="dynamo", marks=pytest.mark.slow)]
)


@EXPORTERS
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_a_model_in_another_dtype(dtype: torch.dtype, dynamo: bool) -> None:
    assert right(Block().to(dtype), torch.randn(2, 5, 8).to(dtype), dynamo)


@EXPORTERS
def test_a_model_in_bfloat16(dynamo: bool) -> None:
    """Sizes too, which the TorchScript exporter writes as complex numbers beside bfloat16."""
    assert right(Block().to(torch.bfloat16), torch.randn(2, 5, 8).to(torch.bfloat16), dynamo)


@EXPORTERS
def test_bfloat16_inside_of_a_branch(dynamo: bool) -> None:
    """The inner graph reads a value of the outer one, which is cast in both."""

    class Chosen(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x = x * 3
            return (x @ x.mT).sum(-1) if x.mean() > 0 else x[..., 0].exp()

    report = onnxpatch.export(
        Chosen().eval(), (torch.ones(2, 5, 5).to(torch.bfloat16),), dynamo=dynamo, branches=True,
        data=[(-torch.ones(2, 5, 5).to(torch.bfloat16),)],
    )  # fmt: skip
    assert report.ok and report.runtime == "onnxruntime"


@EXPORTERS
def test_a_model_made_while_double_is_the_default(double_by_default: None, dynamo: bool) -> None:
    assert right(Block(), torch.randn(2, 5, 8), dynamo)


@pytest.mark.parametrize("dynamo", [False, True], ids=["trace", "dynamo"])
def test_convolutions_and_batch_norms_under_autocast(dynamo: bool) -> None:
    assert right(Cast(Convolved()), torch.randn(2, 3, 6, 7), dynamo)


@EXPORTERS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_attention_under_autocast(dtype: torch.dtype, dynamo: bool) -> None:
    assert right(Cast(Block(), dtype), torch.randn(2, 5, 8), dynamo)


@EXPORTERS
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_outputs_have_the_models_dtypes(dtype: torch.dtype, dynamo: bool, tmp_path: Path) -> None:
    class Sums(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return x.sum(-1), x.cumsum(0), x.float().mean(), x * 2

    x = torch.randn(2, 5).to(dtype)
    assert onnxpatch.export(Sums().eval(), (x,), tmp_path / "m.onnx", dynamo=dynamo, dynamic_shapes=SIZES)
    outputs = onnxpatch.Session(tmp_path / "m.onnx")(x)
    assert [one.dtype for one in outputs] == [dtype, dtype, torch.float32, dtype]
