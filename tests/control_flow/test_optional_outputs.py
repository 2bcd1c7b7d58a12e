"""Outputs that may be missing: the decorator, the file's metadata, and Session, which puts None back."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch.control_flow import report_of
from onnxpatch.control_flow.flat_outputs import name_outputs
from tests.exporting import export, run

pytestmark = pytest.mark.exports

EXPORTERS = ("dynamo", "trace")
ROWS = ({0: "rows"},)


class Formatting(nn.Module):
    @onnxpatch.optional_output(like="input_tensor")
    def forward(self, input_tensor):
        if torch.all(input_tensor == 0):
            return None
        return input_tensor * 2


class Ignored(nn.Module):
    @onnxpatch.optional_output(like="x", fill=-1, flag="ignored")
    def forward(self, x):
        return x.exp() if x.sum() > 0 else None


@dataclasses.dataclass
class Found:
    boxes: torch.Tensor
    scores: torch.Tensor | None = None


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor | None


class Dataclass(nn.Module):
    def forward(self, x):
        return Found(x + 1, x.mean(-1) if x.max() > 1 else None)


class Nested(nn.Module):
    def forward(self, x):
        extra = None
        if x.sum() > 0:
            extra = x * 3
        return {"main": (x + 1, extra), "more": [x - 1], "name": "kept", "none": None}


class Named(nn.Module):
    def forward(self, x):
        return Pair(x, x.abs() if (x < 0).any() else None)


def made(model: nn.Module, x: torch.Tensor, exporter: str, file: Path) -> onnxpatch.Session:
    with onnxpatch.patched(model, branches=True, exporter=exporter):
        file.write_bytes(export(model, (x,), exporter, ROWS))
        name_outputs(file, report_of(model))
    return onnxpatch.Session(file, classes=[Found, Pair])


def same(a: Any, b: Any) -> bool:
    if isinstance(b, torch.Tensor):
        return isinstance(a, torch.Tensor) and a.shape == b.shape and torch.allclose(a, b)
    if dataclasses.is_dataclass(b):
        return type(a) is type(b) and same(vars(a), vars(b))
    if isinstance(b, dict):
        return isinstance(a, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in b)
    if isinstance(b, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("cls", [Formatting, Ignored, Dataclass, Nested, Named])
def test_session_returns_what_eager_returns(cls: type[nn.Module], exporter: str, tmp_path: Path) -> None:
    model = cls().eval()
    session = made(model, torch.ones(2, 3), exporter, tmp_path / "m.onnx")
    for x in (torch.ones(2, 3), torch.zeros(4, 3), -torch.ones(5, 3), torch.full((1, 3), 2.0)):
        wanted = model(x)
        assert same(session(x), wanted), (session(x), wanted)


EXAMPLES = (torch.ones(2, 3), torch.zeros(4, 3), -torch.ones(5, 3), torch.full((1, 3), 2.0))


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("cls", [Formatting, Ignored, Dataclass, Nested, Named])
def test_export_writes_the_structure(cls: type[nn.Module], exporter: str, tmp_path: Path) -> None:
    model = cls().eval()
    file = tmp_path / "m.onnx"
    onnxpatch.export(
        model, (EXAMPLES[0],), file, branches=True, dynamo=exporter == "dynamo", dynamic_shapes=({0: "rows"},)
    )
    session = onnxpatch.Session(file, classes=[Found, Pair])
    for x in EXAMPLES:
        assert same(session(x), model(x)), (session(x), model(x))


def test_without_classes_structures_are_records(tmp_path: Path) -> None:
    for model, names in ((Dataclass().eval(), ("boxes", "scores")), (Named().eval(), ("first", "second"))):
        file = tmp_path / "m.onnx"
        onnxpatch.export(model, (EXAMPLES[0],), file, branches=True, dynamo=False, dynamic_shapes=({0: "rows"},))
        session = onnxpatch.Session(file)
        for x in EXAMPLES:
            out, wanted = session(x), model(x)
            for index, name in enumerate(names):
                assert same(getattr(out, name), getattr(wanted, name))
                assert same(out[name], getattr(wanted, name))
                has_place = isinstance(wanted, tuple) or out[name] is not None  # a ModelOutput counts without None
                assert same(out[index], getattr(wanted, name)) if has_place else len(out) == index


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_export_takes_names_for_values_or_for_all(exporter: str, tmp_path: Path) -> None:
    for names, wanted in (
        (["first", "second"], ["first", "second", "has_second"]),
        (["first", "has_second", "second"], ["first", "has_second", "second"]),
        (None, ["output_0", "output_1", "has_output_1"]),
    ):
        file = tmp_path / "m.onnx"
        onnxpatch.export(
            Pairs().eval(), (EXAMPLES[0],), file, branches=True, dynamo=exporter == "dynamo", output_names=names
        )
        session = onnxpatch.Session(file)
        assert session.outputs == wanted
        assert session(-EXAMPLES[0])[1] is None


class Pairs(nn.Module):
    def forward(self, mask):
        return mask * 2, mask + 1 if mask.sum() > 0 else None


class InputsName(nn.Module):
    def forward(self, mask):
        return {"mask": mask * 2, 3: mask if mask.sum() > 0 else None}


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_name_that_the_graph_has_is_not_taken_twice(exporter: str, tmp_path: Path) -> None:
    model = InputsName().eval()
    onnxpatch.export(model, (EXAMPLES[0],), tmp_path / "m.onnx", branches=True, dynamo=exporter == "dynamo")
    session = onnxpatch.Session(tmp_path / "m.onnx")
    for x in (EXAMPLES[0], -EXAMPLES[0]):
        assert same(session(x), model(x)), session(x)


class OnnxOptional(nn.Module):
    @onnxpatch.optional_output(form="onnx")
    def forward(self, x):
        return x * 2, x.exp() if x.sum() > 0 else None


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_onnx_optional_type(exporter: str, tmp_path: Path) -> None:
    model, file = OnnxOptional().eval(), tmp_path / "m.onnx"
    onnxpatch.export(
        model, (EXAMPLES[0],), file, branches=True, dynamo=exporter == "dynamo", dynamic_shapes=({0: "rows"},)
    )
    session = onnxpatch.Session(file)
    assert session.outputs == ["output_0", "output_1"]
    for x in EXAMPLES:
        assert same(session(x), model(x)), (session(x), model(x))
    onnx.checker.check_model(file)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_onnx_optional_type_is_refused_where_torch_writes_the_file(exporter: str) -> None:
    model = OnnxOptional().eval()
    with pytest.raises(Exception) as caught, onnxpatch.patched(model, branches=True, exporter=exporter):
        export(model, (EXAMPLES[0],), exporter)
    assert "onnxpatch.export" in str(caught.value) + str(caught.value.__cause__)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_names_and_polarity(exporter: str, tmp_path: Path) -> None:
    session = made(Ignored(), torch.ones(2, 3), exporter, tmp_path / "m.onnx")
    assert session.outputs == ["output", "output_is_ignored"]
    value, ignored = run((tmp_path / "m.onnx").read_bytes(), (-torch.ones(2, 3),))
    assert bool(ignored)
    assert torch.equal(value, -torch.ones(2, 3))
    session = made(Nested(), torch.ones(2, 3), exporter, tmp_path / "n.onnx")
    assert session.outputs == ["main_0", "main_1", "has_main_1", "more_0"]
    onnx.checker.check_model(tmp_path / "n.onnx", full_check=True)


def test_eager_is_untouched_by_the_decorator() -> None:
    assert Formatting()(torch.zeros(2)) is None
    assert torch.equal(Formatting()(torch.ones(2)), torch.full((2,), 2.0))


def test_like_must_name_an_argument() -> None:
    with pytest.raises(ValueError, match="takes x"):

        class Wrong(nn.Module):
            @onnxpatch.optional_output(like="y")
            def forward(self, x):
                return x


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_value_that_is_never_there_needs_like(exporter: str, tmp_path: Path) -> None:
    class Never(nn.Module):
        @onnxpatch.optional_output
        def forward(self, x):
            return None

    with pytest.raises(Exception) as caught:
        made(Never(), torch.ones(2, 3), exporter, tmp_path / "m.onnx")
    assert "like=" in str(caught.value) + str(caught.value.__cause__)


def test_session_without_metadata_and_with_wrong_inputs(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(export(nn.ReLU(), (torch.ones(2),), "trace"))
    session = onnxpatch.Session((tmp_path / "m.onnx").read_bytes())
    assert torch.equal(session(torch.tensor([-1.0, 1.0])), torch.tensor([0.0, 1.0]))
    assert torch.equal(session(in0=torch.tensor([-1.0, 1.0])), torch.tensor([0.0, 1.0]))
    with pytest.raises(onnxpatch.InputError, match="2 inputs given; the graph takes 1: in0 float32"):
        session(torch.ones(2), torch.ones(2))
    with pytest.raises(onnxpatch.InputError, match="no file"):
        onnxpatch.Session(tmp_path / "absent.onnx")


def test_script_keeps_onnx_optional(tmp_path: Path) -> None:
    model = Formatting()
    with onnxpatch.patched(model, exporter="script"):
        (tmp_path / "m.onnx").write_bytes(export(model, (torch.ones(2, 3),), "script", ROWS))
    session = onnxpatch.Session(tmp_path / "m.onnx")
    assert session(torch.zeros(4, 3)) is None
    assert torch.equal(session(torch.ones(4, 3)), torch.full((4, 3), 2.0))
