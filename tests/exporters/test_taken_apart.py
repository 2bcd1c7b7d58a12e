"""Functions that torch.export takes apart into primitives without a translation, and what else only dynamo meets."""

from __future__ import annotations

import pytest
import torch

import onnxpatch
from onnxpatch.exporters.dynamo_passes import TRANSLATIONS

pytestmark = pytest.mark.exports


class Xlog1py(torch.nn.Module):
    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.xlog1py(x, self.number)


@pytest.mark.parametrize("number", [2.0, 3, True], ids=str)
def test_a_number_beside_a_tensor(number: float) -> None:
    assert onnxpatch.export(
        Xlog1py(number).eval(), (torch.randn(2, 3),), dynamic_shapes=({0: "n"},), attempts="asked"
    ).ok


class FilledColumn(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y.t().index_fill_(0, torch.tensor([1]), 1.5)
        return y


def test_a_write_that_keeps_the_strides_of_a_view() -> None:
    assert onnxpatch.export(
        FilledColumn().eval(), (torch.randn(2, 3),), exporter="dynamo", dynamic_shapes=({0: "n"},), attempts="asked"
    ).ok


class Squeezed(torch.nn.Module):
    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return maps.squeeze(3).squeeze(0).mean(-1)


def test_a_squeeze_of_a_dynamic_size_keeps_it() -> None:
    # In torch's own second trace: the kit's replacement of operators knows it already.
    sizes = {3: torch.export.Dim.DYNAMIC}
    program = torch.onnx.export(
        Squeezed(),
        (torch.randn(1, 2, 5, 4),),
        dynamo=True,
        dynamic_shapes=(sizes,),
        custom_translation_table=TRANSLATIONS,
    )
    assert program is not None
    maps = torch.randn(1, 2, 5, 7)
    torch.testing.assert_close(program(maps)[0], Squeezed()(maps))


class WithoutText(torch.nn.Linear):
    def __repr__(self) -> str:
        raise KeyError("alpha")


def test_a_part_that_has_no_text_is_exported() -> None:
    model = torch.nn.Sequential(WithoutText(3, 3)).eval()
    shapes = ({0: "n"},)
    args = (torch.randn(2, 3),)
    assert onnxpatch.export(model, args, exporter="dynamo", dynamic_shapes=shapes, attempts="asked").ok
