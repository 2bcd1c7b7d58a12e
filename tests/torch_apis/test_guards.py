"""Conditions that torch.export cannot solve: left out where an operator asks for them as eager does, else refused."""

import pytest
import sympy
import torch
from torch import Tensor, nn
from torch.fx.experimental import symbolic_shapes
from torch.nn import functional as F

import onnxpatch
from onnxpatch._torch.guards import conditions_solved
from tests.exporting import export, run, wrong

pytestmark = pytest.mark.exports


class Pyramid(nn.Module):
    """Two levels of features added, as in a feature pyramid, on patches of four rows."""

    def forward(self, x: Tensor) -> Tensor:
        rows = F.max_pool2d(x, (3, 1), stride=(4, 1), padding=(1, 0)) + x.unflatten(2, (-1, 4)).mean(3)
        fine = F.max_pool2d(F.max_pool2d(rows, (2, 1)), (2, 1))
        coarse = F.interpolate(F.max_pool2d(fine, (2, 1)), scale_factor=(2.0, 1.0))
        return self.merge(fine, coarse)

    def merge(self, fine: Tensor, coarse: Tensor) -> Tensor:
        return fine + coarse


class Choosing(Pyramid):
    """The model itself asks whether the levels fit, and goes on either way."""

    def merge(self, fine: Tensor, coarse: Tensor) -> Tensor:
        return torch.cat([fine, coarse], 1) if fine.shape[2] == coarse.shape[2] else fine


EXAMPLE, SHAPES = (torch.randn(2, 3, 64, 6),), ({0: "batch", 2: "height"},)


@pytest.mark.slow
def test_levels_are_refused_without_the_kit():
    with pytest.raises(Exception, match="export"):
        export(Pyramid().eval(), EXAMPLE, "dynamo", SHAPES)


@pytest.mark.quick  # the only export here that goes through
def test_levels_that_an_addition_needs_equal():
    model = Pyramid().eval()
    with onnxpatch.patched(model):
        file = export(model, EXAMPLE, "dynamo", SHAPES)
    for height in (32, 64, 160):
        args = (torch.randn(3, 3, height, 6),)
        assert wrong(run(file, args), model(*args), 1e-6) is None


def test_an_if_of_the_model_is_not_left_out():
    model = Choosing().eval()
    with onnxpatch.patched(model), pytest.raises(Exception, match="export"):
        export(model, EXAMPLE, "dynamo", SHAPES)


class Shrunk(nn.Module):
    """What is wider than twenty is doubled."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[2] / 20 > 1.0 else x + 1


def test_a_condition_on_a_quotient_is_no_error_of_torch():
    with pytest.raises(onnxpatch.VerificationError, match=r"right for width >= 21") as raised:
        onnxpatch.export(
            Shrunk().eval(), (torch.randn(2, 3, 24),), None, exporter="dynamo", dynamic_shapes=({2: "width"},),
            attempts="asked",
        )  # fmt: skip
    assert "assumed 1.0 < width/20" in str(raised.value)


def test_an_expression_is_expanded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = sympy.symbols("a b", integer=True)
    asked, expand = [], symbolic_shapes._expandsums
    monkeypatch.setattr(symbolic_shapes, "_expandsums", lambda terms: asked.append(1) or expand(terms))
    with conditions_solved():
        found = [symbolic_shapes.safe_expand((a + 1) * (b + (a + 2) * (b + 3))) for _ in range(2)]
        counted = len(asked)
        symbolic_shapes.safe_expand((a + 2) * (b + 3))
    assert found[0] == found[1] == sympy.expand((a + 1) * (b + (a + 2) * (b + 3))) and len(asked) == counted > 0
