"""Nearest resizing to a size: onnxruntime picks other neighbours for some; the kit picks those of torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import onnxpatch
from onnxpatch.formulas.interpolation import grows_wholly, runtime_agrees
from tests.exporting import export, run

pytestmark = pytest.mark.exports

BOTH = pytest.mark.parametrize("exporter", ["dynamo", "trace"])
FREE = ({2: "h", 3: "w"}, {2: "H", 3: "W"})


class ToTheOther(nn.Module):
    """The first image at the size of the second, as masks, logits and pyramids are resized."""

    def __init__(self, mode: str = "nearest") -> None:
        super().__init__()
        self.mode = mode

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=y.shape[-2:], mode=self.mode) + 0 * y.mean()


def pair(before: int, after: int) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = torch.arange(2 * 3 * before * before, dtype=torch.float32)
    return numbers.reshape(2, 3, before, before), torch.zeros(2, 1, after, after)


def patched(model: nn.Module, args: Sequence[torch.Tensor], exporter: str) -> bytes:
    with onnxpatch.patched(model.eval(), exporter=exporter):
        return export(model, tuple(args), exporter, FREE)


def differing(file: bytes, model: nn.Module, sizes: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    return [s for s in sizes if not torch.equal(run(file, pair(*s))[0], model(*pair(*s)))]


@BOTH
def test_every_neighbour_is_eagers(exporter: str) -> None:
    model = ToTheOther()
    sizes = [(56, 4), (14, 2), (28, 2), (14, 32), (12, 74), (40, 48), (7, 7), (9, 1), (1, 9), (20, 40), (21, 41)]
    assert differing(patched(model, pair(20, 30), exporter), model, iter(sizes)) == []
    plain = export(ToTheOther(), pair(20, 30), exporter, FREE)
    assert (56, 4) in differing(plain, model, iter(sizes))  # what the patch is for


class Pyramid(nn.Module):
    """A level of a feature pyramid: half the size, and back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(F.max_pool2d(x, 3, 2, 1), size=x.shape[-2:], mode="nearest")


@BOTH
def test_growth_by_a_whole_factor_stays_one_resize(exporter: str) -> None:
    import onnx

    model = Pyramid().eval()
    with onnxpatch.patched(model, exporter=exporter):
        file = export(model, (torch.randn(1, 2, 26, 26),), exporter, ({2: "h", 3: "w"},))
    assert [node.op_type for node in onnx.load_from_string(file).graph.node].count("Resize") == 1
    for side in (1, 2, 7, 25, 57, 182):
        x = torch.randn(1, 2, side, side + 3)
        assert torch.equal(run(file, (x,))[0], model(x))


@BOTH
def test_growth_by_a_whole_factor_may_be_the_examples_alone(exporter: str) -> None:
    model = ToTheOther()
    sizes = [(14, 4), (26, 22), (56, 4), (14, 46), (10, 20), (20, 40)]
    assert differing(patched(model, pair(10, 20), exporter), model, iter(sizes)) == []


@BOTH
def test_a_static_size_of_a_dynamic_image_is_a_whole_factor_of_one_size_only(exporter: str) -> None:
    class Fixed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.interpolate(x, size=(50, 50))

    model = Fixed().eval()
    with onnxpatch.patched(model, exporter=exporter):
        file = export(model, (torch.randn(1, 2, 17, 17),), exporter, ({2: "h", 3: "w"},))
    for side in (17, 25, 45, 57, 85, 182):
        x = torch.randn(1, 2, side, side)
        assert torch.equal(run(file, (x,))[0], model(x))


@BOTH
@pytest.mark.parametrize("factor", [0.3, 1.7, 2.0])
def test_scale_factors(exporter: str, factor: float) -> None:
    class Scaled(nn.Module):
        """Each way in one model: an export takes seconds."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            ways = [
                F.interpolate(x, scale_factor=factor, mode=mode, recompute_scale_factor=recompute)
                for mode in ("nearest", "nearest-exact")
                for recompute in (None, True)
            ]
            return torch.cat(ways)

    model = Scaled().eval()
    with onnxpatch.patched(model, exporter=exporter):
        file = export(model, (torch.randn(1, 2, 40, 40),), exporter, ({2: "h", 3: "w"},))
    for height, width in ((40, 40), (39, 39), (4, 70), (101, 33)):
        x = torch.randn(1, 2, height, width)
        assert torch.equal(run(file, (x,))[0], model(x))


@BOTH
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_float64(exporter: str, axes: int) -> None:
    """torch rounds places otherwise than in float32, and otherwise for two axes than for one or three."""

    class Fixed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.interpolate(x, size=(50,) + (3,) * (axes - 1))

    model, rest = Fixed().eval(), (3,) * (axes - 1)
    with onnxpatch.patched(model, exporter=exporter):
        file = export(model, (torch.randn(1, 1, 17, *rest).double(),), exporter, ({2: "n"},))
    for length in (58, 70, 105, 106, 182, 190):
        x = torch.randn(1, 1, length, *rest).double()
        assert torch.equal(run(file, (x,))[0], model(x))


@BOTH
def test_nearest_exact(exporter: str) -> None:
    model = ToTheOther("nearest-exact")
    sizes = [(14, 2), (14, 32), (40, 48), (7, 7), (9, 1), (1, 9), (20, 40), (20, 10)]
    assert differing(patched(model, pair(20, 30), exporter), model, iter(sizes)) == []


def test_static_sizes_that_the_runtime_gets_wrong() -> None:
    class Mask(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.interpolate(x, size=(16, 16))

    model, x = Mask().eval(), torch.randn(1, 1, 224, 224)
    assert not runtime_agrees(224, 16)
    for dynamo in (True, False):
        assert onnxpatch.export(model, (x,), dynamo=dynamo).ok


def test_the_rule_of_whole_growth_holds() -> None:
    pairs = [(a, b) for a in range(1, 40) for k in range(1, 33) for b in (k * a - 1, k * a, k * a + 1) if b > 0]
    assert all(runtime_agrees(*one) for one in pairs if grows_wholly(*one))
    assert not grows_wholly(20, 30) and not grows_wholly(14, 2) and not grows_wholly(1, 40)
