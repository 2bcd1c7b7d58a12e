"""Output names and structure are in every file, and outputs that exporters refuse become outputs that they take."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import nn

import onnxpatch

pytestmark = pytest.mark.exports

EXPORTERS = ("dynamo", "trace")
Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass
class Found:
    boxes: torch.Tensor
    scores: torch.Tensor | None = None


class Returning(nn.Module):
    """linear, then what `give(x, y)` makes of input and result."""

    def __init__(self, give: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
        super().__init__()
        self.linear, self.give = nn.Linear(3, 3), give

    def forward(self, x: torch.Tensor) -> Any:
        return self.give(x, self.linear(x))


GIVEN: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "tensor": (lambda x, y: y, ["output"]),
    "dict": (lambda x, y: {"zeta": y, "alpha": y + 1}, ["zeta", "alpha"]),
    "dict by numbers": (lambda x, y: {24: y, 12: y + 1}, ["output_24", "output_12"]),
    "nested": (lambda x, y: (y, {"aux": [y + 1, y + 2]}), ["output_0", "aux_1_0", "aux_1_1"]),
    "named tuple": (lambda x, y: Pair(y, y + 1), ["first", "second"]),
    "None inside": (lambda x, y: {"y": y, "mask": None}, ["y"]),
    "dataclass": (lambda x, y: Found(y + 1), ["boxes"]),
    "constants": (lambda x, y: {"y": y, "n": 3, "name": "kept"}, ["y"]),
    "numbers of sizes": (
        lambda x, y: (y, x.shape[0] * 2, x.shape[0] / 4, x.shape[0] > 2),
        ["output_0", "output_1", "output_2", "output_3"],
    ),
    "an inner value's name": (lambda x, y: {"linear": y + 1, "add": y * 2}, ["linear", "add"]),
    "one tensor twice": (lambda x, y: (y, y), ["output_0", "output_1"]),
    "the input": (lambda x, y: {"x": x, "y": y}, ["x_1", "y"]),
}


def equal(got: Any, wanted: Any) -> bool:
    if isinstance(wanted, torch.Tensor):
        return isinstance(got, torch.Tensor) and torch.allclose(got, wanted, atol=1e-6)
    if isinstance(wanted, int | float) and isinstance(got, torch.Tensor):
        return got.item() == pytest.approx(wanted)
    if isinstance(wanted, dict):
        return list(got) == list(wanted) and all(equal(got[key], wanted[key]) for key in wanted)
    if isinstance(wanted, tuple | list):
        return type(got) is type(wanted) and len(got) == len(wanted) and all(map(equal, got, wanted))
    if dataclasses.is_dataclass(wanted):
        return type(got) is type(wanted) and equal(vars(got), vars(wanted))
    return bool(got == wanted)


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("kind", GIVEN)
def test_session_gives_what_eager_gives(kind: str, exporter: str, tmp_path: Path) -> None:
    give, names = GIVEN[kind]
    model, file = Returning(give).eval(), tmp_path / "m.onnx"
    sizes = ({0: "rows"},)
    onnxpatch.export(model, (torch.randn(2, 3),), file, exporter=exporter, dynamic_shapes=sizes, attempts="asked")
    session = onnxpatch.Session(file, classes=[Found, Pair])
    assert session.outputs == names and session.inputs == ["x"]
    onnx.checker.check_model(str(file))
    for rows in (1, 2, 5):
        x = torch.randn(rows, 3)
        assert equal(session(x), model(x))


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_names_given_come_first(exporter: str, tmp_path: Path) -> None:
    model, file = Returning(lambda x, y: {"a": y, "b": y + 1}).eval(), tmp_path / "m.onnx"
    onnxpatch.export(model, (torch.randn(2, 3),), file, exporter=exporter, output_names=["mine"])
    session, x = onnxpatch.Session(file), torch.randn(2, 3)
    assert session.outputs == ["mine", "b"] and equal(session(x), model(x))


@pytest.mark.parametrize("names", [None, ("p", "q")])
def test_inputs_keep_their_names_where_a_view_of_them_is_no_work(names: tuple[str, ...] | None, tmp_path: Path) -> None:
    class Viewed(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x.t(), y.expand(y.shape) * 2, y

    file, args = tmp_path / "m.onnx", (torch.randn(3), torch.randn(2, 4))
    onnxpatch.export(Viewed().eval(), args, file, dynamic_shapes=({0: "n"}, {0: "b"}), input_names=names)
    assert [value.name for value in onnx.load(file).graph.input] == list(names or ("x", "y"))


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_without_a_comparison_names_and_structure_are_there_too(exporter: str, tmp_path: Path) -> None:
    model, file = Returning(lambda x, y: {"logits": y, "none": None}).eval(), tmp_path / "m.onnx"
    onnxpatch.export(model, (torch.randn(2, 3),), file, exporter=exporter, check=False)
    session, x = onnxpatch.Session(file), torch.randn(2, 3)
    assert session.outputs == ["logits"] and equal(session(x), model(x))


def test_a_scripted_model(tmp_path: Path) -> None:
    class Scripted(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * 2, x + 1

    model, file = Scripted().eval(), tmp_path / "m.onnx"
    onnxpatch.export(model, (torch.randn(2, 3),), file, exporter="script")
    session, x = onnxpatch.Session(file), torch.randn(2, 3)
    assert session.outputs == ["output_0", "output_1"] and equal(session(x), model(x))


def test_an_output_of_the_callers_own_order_keeps_the_exporters_names(tmp_path: Path) -> None:
    model, file = Returning(lambda x, y: {"a": y, "b": y + 1}).eval(), tmp_path / "m.onnx"
    report = onnxpatch.export(
        model, (torch.randn(2, 3),), file, exporter="trace", flatten=lambda out: [out["a"] + 0, out["b"]]
    )
    assert report.ok and onnxpatch.Session(file).structure is None
