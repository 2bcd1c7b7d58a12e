"""Conditions that torch.export cannot solve: left out where an operator asks for them as eager does, else refused."""

import pytest
import sympy
import torch
from torch import Tensor, nn
from torch.fx.experimental import symbolic_shapes
from torch.nn import functional as F
from torch.utils._sympy.functions import FloorDiv, Max, Min

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


class Joined(Pyramid):
    """Of levels that are joined, the widths have to be the same."""

    def merge(self, fine: Tensor, coarse: Tensor) -> Tensor:
        return torch.cat([fine, coarse], 1)


EXAMPLE, SHAPES = (torch.randn(2, 3, 64, 6),), ({0: "batch", 2: "height"},)


@pytest.mark.slow
def test_levels_are_refused_without_the_kit():
    with pytest.raises(Exception, match="export"):
        export(Pyramid().eval(), EXAMPLE, "dynamo", SHAPES)


@pytest.mark.quick  # the only exports here that go through
@pytest.mark.parametrize("kind", [Pyramid, Joined])
def test_levels_that_an_addition_or_cat_needs_equal(kind):
    model = kind().eval()
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


class Pooled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        factor = max(1, round(min(x.shape[-2:]) / 16))
        return F.avg_pool2d(x, kernel_size=factor) if factor > 1 else x * 2


def test_a_condition_on_a_rounded_size_is_no_error_of_torch_and_both_sides_together_show_it() -> None:
    """The factor stays 4 at every size but two that are both larger, or both smaller."""
    with pytest.raises(onnxpatch.VerificationError, match="h=193, w=217"):
        onnxpatch.export(
            Pooled(), (torch.randn(1, 1, 64, 72),), exporter="dynamo", dynamic_shapes=({2: "h", 3: "w"},),
            branches=True, attempts="asked",
        )  # fmt: skip


def test_an_expression_is_expanded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = sympy.symbols("a b", integer=True)
    asked, expand = [], symbolic_shapes._expandsums
    monkeypatch.setattr(symbolic_shapes, "_expandsums", lambda terms: asked.append(1) or expand(terms))
    with conditions_solved():
        found = [symbolic_shapes.safe_expand((a + 1) * (b + (a + 2) * (b + 3))) for _ in range(2)]
        counted = len(asked)
        symbolic_shapes.safe_expand((a + 2) * (b + 3))
    assert found[0] == found[1] == sympy.expand((a + 1) * (b + (a + 2) * (b + 3))) and len(asked) == counted > 0


def test_what_stays_as_it_is_is_expanded_once_too() -> None:
    """Max and Min are made anew at each call: an equal one in place of what was given counted as changed, for ever."""
    a = sympy.Symbol("a", integer=True, positive=True)
    least = Min(FloorDiv(a + Min(4, a) - 1, Min(4, a)) * Min(4, a), a)
    with conditions_solved():
        symbolic_shapes.safe_expand(least + 1)
        given = Max(0, Min(*least.args))
        assert symbolic_shapes._fast_expand(given) is given


def test_a_quotient_by_a_common_factor_is_divided_term_by_term(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c = sympy.symbols("a b c", integer=True, positive=True)
    monkeypatch.setattr(sympy, "simplify", lambda *_: pytest.fail("searched for a shorter form"))
    with conditions_solved():
        assert FloorDiv(2 * a * b + 4 * a * c, 6 * a * b) == FloorDiv(b + 2 * c, 3 * b)


class Halved(nn.Module):
    """Padded to an even number of rows and halved, twice, then to windows of four, or of all where there are fewer."""

    lengths: list[str] = []  # what forward wrote

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for _ in range(2):
            odd = x.shape[1] % 2 == 1
            if odd:
                x = F.pad(x, (0, 0, 0, x.shape[1] % 2))
            x = x[:, ::2] + x[:, 1::2]
        window = min(4, x.shape[1])
        x = F.pad(x, (0, 0, 0, (window - x.shape[1] % window) % window))
        self.lengths.append(str(x.shape[1]))
        return x, x.reshape(x.shape[0], x.shape[1] // window, window, 3)


@pytest.mark.slow
def test_sizes_of_halves_and_of_windows_stay_short() -> None:
    model = Halved().eval()
    report = onnxpatch.export(
        model, (torch.randn(2, 21, 3),), None, exporter="dynamo", dynamic_shapes=({0: "b", 1: "n"},), attempts="asked"
    )
    symbolic = [one for one in model.lengths if "Min(4" in one]
    assert report.ok and symbolic and not any("Mod" in one for one in symbolic)
