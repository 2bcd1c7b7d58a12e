"""What a diagnosis prints as a cure was tried, and is right when it is pasted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import onnxpatch
from onnxpatch.html.diagnosed import diagnosis_context

pytestmark = pytest.mark.exports

SEQUENCES = ({0: "batch", 1: "length"},)


class Signs(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.mean() > 0 else x.flip(1)


class Spectrum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.rfft(x, dim=1).abs()


class Part(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, : int(x.shape[1] * 0.3) + 1].cumsum(1)


class Several(nn.Module):
    """What cures one of the parts is not enough for the whole."""

    def __init__(self) -> None:
        super().__init__()
        self.signs, self.spectrum = Signs(), Spectrum()

    def forward(self, x: Tensor) -> Tensor:
        return self.spectrum(self.signs(x))


class Gelu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(nn.functional.gelu(x)) + torch.cos(x)


def _diagnosed(model: nn.Module, exporter: str = "trace", **options: object) -> onnxpatch.Diagnosis:
    return onnxpatch.doctor(model, _example(), dynamic_shapes=SEQUENCES, exporter=exporter, **options)


def _example() -> tuple[Tensor, ...]:
    return (torch.rand(2, 9, 4, generator=torch.Generator().manual_seed(0)),)


@pytest.mark.parametrize("opset", [18, 20])
@pytest.mark.parametrize(
    ("model", "exporter"),
    [(Signs, "trace"), (Spectrum, "trace"), (Part, "trace"), pytest.param(Signs, "dynamo", marks=pytest.mark.slow)],
)
def test_each_cure_is_right_when_it_is_pasted(model: type[nn.Module], exporter: str, opset: int) -> None:
    made = model().eval()
    found = _diagnosed(made, exporter, opset_version=opset)
    assert any(proposal.whole for proposal in found.proposals)
    for line, _ in diagnosis_context(made, found)["ways"]:
        assert ("opset_version=20" in line) == (opset == 20)
        pasted = line.replace('"model.onnx"', "None")
        assert eval(pasted, {"onnxpatch": onnxpatch, "model": made, "args": _example(), "dynamic_shapes": SEQUENCES})


def test_what_is_not_enough_or_was_not_tried_says_so() -> None:
    found = _diagnosed(Several().eval())
    cures = [line for line in str(found).splitlines() if line.strip().startswith("->")]
    assert any("right, not enough for the whole model" in line for line in cures), found
    assert all("tried on" in line or line.endswith("(not tried)") for line in cures), found


def test_leaving_patches_out_was_tried() -> None:
    registry = onnxpatch.Registry()
    for name in ("sin", "cos"):
        onnxpatch.patch(f"torch.{name}", name=f"{name}-doubled", why="wrong", registry=registry)(
            lambda original, *args, **kwargs: original(*args, **kwargs) * 2
        )
    model = Gelu().eval()
    found = _diagnosed(model, registry=registry)
    # Each of the two makes the graph wrong by itself: without one of them it is wrong still.
    assert {proposal.name for proposal in found.proposals} == {"cos-doubled,sin-doubled"}
    (line, _), *others = diagnosis_context(model, found)["ways"]
    assert not others
    assert "exclude=['cos-doubled', 'sin-doubled']" in line
    with onnxpatch.patched(model, exporter="trace", registry=registry, exclude=["sin-doubled", "cos-doubled"]) as made:
        assert not made.plan.patches()
