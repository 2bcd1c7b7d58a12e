"""A program that is rewritten node by node gives the file that torch's own decomposition gives; others are torch's."""

from __future__ import annotations

import contextlib
import functools
import operator
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.onnx._internal.exporter._errors import ConversionError

import onnxpatch
import onnxpatch.exporters.dynamo as dynamo
from onnxpatch._torch.operator_tables import few_decompositions, rewritten

pytestmark = pytest.mark.exports

passes = pytest.importorskip("torch.onnx._internal.exporter._fx_passes")
registration = pytest.importorskip("torch.onnx._internal.exporter._registration")


@functools.cache
def torchlib() -> Any:
    """torch's translations: seconds, which only the tests that ask for them pay."""
    return registration.ONNXRegistry.from_torchlib(opset_version=18)


class Everything(nn.Module):
    """Each operator that has a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm2d(4), nn.Dropout(0.5)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.scale = torch.tensor([1.0, 2.0])

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        with torch.no_grad():
            table = (y.square() > 0.5) & (y < 2) | (y > 3)
        x = self.norm(x).relu_()
        x += 1.0 - y
        x = self.drop(x)
        joined = x.transpose(1, 2).flatten(1, 2).contiguous()
        parts = joined.unflatten(1, (-1, 4)).reshape(x.shape[0], -1, 4, 6)
        first, second = x.chunk(2, dim=1)
        least = torch.min(torch.max(first, second), second.swapaxes(2, 3).swapaxes(2, 3))
        wide = self.pool(x).expand_as(x).view_as(x) * table.to(x.dtype).type_as(x)
        # `tensor` of a list is lifted, copied and detached.
        return parts, least, wide.detach(), x.to(torch.float64), x.float() * torch.tensor([1.0] * 6) + self.scale[0]


class Deciding(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))
        return found


class ThroughAView(nn.Module):
    """Writes into a tensor of which there is a view, which is read afterwards."""

    def forward(self, x: Tensor) -> Tensor:
        whole = x * 2
        turned = whole.transpose(0, 1)
        whole.add_(x)
        return turned @ x


class Chained(nn.Module):
    """Writes twice into one tensor, and reads the first result after the second."""

    def forward(self, x: Tensor) -> Tensor:
        whole = x * 2
        again = whole.add_(x)
        whole.mul_(x)
        return again - x


class Keeping(nn.Module):
    """Reads what it kept before, and keeps the rows for the next call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.ones(8, 4), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        before = self.kept.sum(0)
        self.kept[: x.shape[0]] = x.detach()
        return x * before


class SharedBetweenParts(nn.Module):
    """Two parts hold the part that writes its buffer: the buffer has two names."""

    def __init__(self) -> None:
        super().__init__()
        keeping = Keeping()
        self.first, self.second = nn.Sequential(keeping), nn.Sequential(nn.Linear(4, 4), keeping)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


class Broadcasting(nn.Module):
    """A write keeps the dtype of what it writes into."""

    def forward(self, x: Tensor) -> Tensor:
        half = (x * 2).half()
        return half.add_(x)


class Nested(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = x * 2
            with torch.enable_grad():
                x = x + 1
            x = x.flatten(1)
        return x


def captured(model: nn.Module, *args: Tensor) -> Any:
    free = tuple({0: Dim.DYNAMIC} for _ in args)
    return torch.export.export(model.eval(), args, dynamic_shapes=free, strict=False)


def images() -> tuple[Tensor, Tensor]:
    return torch.randn(3, 4, 5, 6), torch.randn(3, 4, 5, 6)


def exported(model: nn.Module, args: tuple[Tensor, ...], path: Path, opset: int) -> onnx.ModelProto:
    free = tuple({0: "batch"} for _ in args)
    onnxpatch.export(model, args, path, dynamic_shapes=free, opset_version=opset, dynamo=True)
    return onnx.load(path)


def shape_of(file: onnx.ModelProto) -> tuple[object, ...]:
    operators = Counter(node.op_type for node in file.graph.node)
    outputs = [value.type.SerializeToString() for value in file.graph.output]
    weights = sorted((one.data_type, tuple(one.dims), one.raw_data) for one in file.graph.initializer)
    return operators, outputs, weights


@pytest.mark.parametrize("opset", [18, 23])
def test_the_file_is_as_torchs_own(opset: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, args = Everything().eval(), images()
    asked: list[Any] = []
    original = passes.decompose_with_registry
    monkeypatch.setattr(passes, "decompose_with_registry", lambda *given: (asked.append(1), original(*given))[1])
    mine = exported(model, args, tmp_path / "mine.onnx", opset)
    assert not asked
    monkeypatch.setattr(dynamo, "few_decompositions", contextlib.nullcontext)
    torchs = exported(model, args, tmp_path / "torchs.onnx", opset)
    assert asked
    assert shape_of(mine) == shape_of(torchs)


@pytest.mark.parametrize(
    "model", [Deciding(), ThroughAView(), Broadcasting(), Nested()], ids=lambda m: type(m).__name__
)
def test_what_is_not_known_is_left_to_torch_as_it_is(model: nn.Module) -> None:
    program = captured(model, torch.rand(4, 4))
    before = str(program.graph)
    assert not rewritten(program, torchlib())
    assert str(program.graph) == before


@pytest.mark.parametrize("model", [Chained(), ThroughAView(), SharedBetweenParts()], ids=lambda m: type(m).__name__)
def test_writes_arrive_where_they_are_read(model: nn.Module, tmp_path: Path) -> None:
    shapes = ({0: Dim("rows", max=8)},)
    report = onnxpatch.export(
        model.eval(), (torch.rand(4, 4),), tmp_path / "m.onnx", dynamic_shapes=shapes, dynamo=True, attempts="asked"
    )
    assert report.ok


def test_vmap_is_carried_out() -> None:
    class Picks(nn.Module):
        def forward(self, x: Tensor, k: Tensor) -> Tensor:
            return torch.func.vmap(lambda r, i: torch.where(i == 0, r.sum(), r[i]) * r)(x, k)

    args, shapes = (torch.randn(3, 5), torch.tensor([0, 2, 1])), ({0: "b", 1: "n"}, {0: "b"})
    assert onnxpatch.export(Picks().eval(), args, dynamic_shapes=shapes, max_probes=6, attempts="asked").ok


def test_sizes_come_from_nodes_that_are_there_or_from_inputs() -> None:
    class Sizes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.transpose(0, 1).flatten(0, 1)

    program = captured(Sizes(), torch.rand(4, 3, 5))
    assert rewritten(program, torchlib())
    program.graph.lint()
    view = next(node for node in program.graph.nodes if node.target is torch.ops.aten.view.default)
    assert view.args[1][0].target is operator.mul and view.args[1][1] == 5


def test_a_translation_of_the_callers_sees_its_operator(tmp_path: Path) -> None:
    from onnxscript.onnx_opset import opset18 as op

    class Squared(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.square()

    def cubed(x: Any) -> object:
        return op.Mul(op.Mul(x, x), x)

    path, table = tmp_path / "m.onnx", {torch.ops.aten.square.default: cubed}
    for given, count in ((table, 2), (None, 0)):
        options = {"custom_translation_table": given} if given else {}
        onnxpatch.export(Squared(), (torch.rand(3),), path, dynamo=True, check=False, **options)
        assert sum(node.op_type == "Mul" for node in onnx.load(path).graph.node) == count


def test_another_thread_has_torchs_own_and_everything_comes_back() -> None:
    before = passes.decompose_with_registry, registration.ONNXRegistry.__dict__["from_torchlib"]
    found: list[str] = []
    program = captured(Chained(), torch.rand(4, 4))
    with pytest.raises(KeyError), few_decompositions():
        other = threading.Thread(
            target=lambda: found.extend(names(passes.decompose_with_registry(program, torchlib())))
        )
        other.start()
        other.join()
        assert passes.decompose_with_registry is not before[0]
        raise KeyError
    assert not any(name.endswith("_") for name in found) and found
    assert (passes.decompose_with_registry, registration.ONNXRegistry.__dict__["from_torchlib"]) == before
    assert any("add_" in name for name in names(program))  # the other thread's program was not rewritten in place


def test_a_parameter_read_by_data_is_refused_and_does_not_end_the_process() -> None:
    class Reads(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weight.data.clone()

    with few_decompositions(False), pytest.raises(ConversionError) as caught:
        torch.onnx.export(Reads(2, 2), (torch.rand(3, 2),), None, dynamo=True, verbose=False)
    assert "use detach" in str(caught.value.__cause__)


def names(program: Any) -> list[str]:
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
