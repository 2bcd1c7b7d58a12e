"""Dataclasses and named tuples as arguments: opened into tensors for the export, the model's own class inside it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch import InputError
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.session import Session

pytestmark = pytest.mark.exports


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


@dataclasses.dataclass(frozen=True)
class Batch:
    image: torch.Tensor
    pair: Pair
    mode: str = "sum"


class Model(nn.Module):
    def forward(self, batch: Batch, more: dict[str, Pair]) -> tuple[torch.Tensor, torch.Tensor]:
        assert type(batch) is Batch and batch.mode == "sum" and type(more["x"]) is Pair
        return batch.image + batch.pair.first * 2, batch.pair.second - more["x"].second.sum(0)


def call(n: int) -> tuple[Batch, dict[str, Pair]]:
    return Batch(torch.randn(n, 4), Pair(torch.randn(n, 4), torch.randn(n, 4))), {
        "x": Pair(torch.randn(3, 4), torch.randn(n, 4))
    }


AXES = {0: "n"}
SHAPES = [
    (Batch(AXES, Pair(AXES, AXES)), {"x": Pair(None, AXES)}),  # type: ignore[arg-type]
    {"batch": {"image": AXES, "pair": (AXES, AXES)}, "more": {"x": {"second": AXES}}},
]


@pytest.mark.parametrize(("exporter", "shapes"), [("dynamo", SHAPES[0]), ("trace", SHAPES[0]), ("trace", SHAPES[1])])
def test_records_are_right_at_other_sizes(exporter, shapes, tmp_path: Path):
    model, given = Model().eval(), call(5)
    report = onnxpatch.export(model, given, tmp_path / "m.onnx", dynamic_shapes=shapes, exporter=exporter)
    assert report.ok and len(report.attempts) == 1
    session = Session(tmp_path / "m.onnx")
    for n in (1, 2, 9):
        args = call(n)
        for got, wanted in zip(session(*args), model(*args), strict=True):
            torch.testing.assert_close(torch.as_tensor(got), wanted)


def test_a_record_is_named_by_its_fields_and_built_again():
    given = call(2)
    inputs = Inputs(Model(), given)
    names = [leaf.name for leaf in inputs.leaves]
    assert names == ["batch_image", "batch_pair_first", "batch_pair_second", "more_x_first", "more_x_second"]
    batch, more = inputs.rebuild(inputs.values()).args
    assert type(batch) is Batch and type(batch.pair) is Pair and batch.mode == "sum" and type(more["x"]) is Pair
    assert torch.equal(batch.pair.second, given[0].pair.second) and batch.image is not given[0].image


def test_shapes_of_another_number_of_fields_are_refused():
    with pytest.raises(InputError, match=r"batch\['pair'\] has the fields \['first', 'second'\], .*one entry each"):
        onnxpatch.export(Model().eval(), call(2), dynamic_shapes={"batch": {"pair": (AXES,)}})
