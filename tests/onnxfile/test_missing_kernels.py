"""What onnxruntime's kernels cannot: int64 from 2**31 on, float64 or float16 of an operator, ends of two dtypes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch

import onnxpatch
from onnxpatch.onnxfile.runtime_forms import cast_what_is_refused
from onnxpatch.onnxfile.wrong_kernels import compare_extremes
from onnxpatch.patching.proof import computing

EDGES = [0, 1, 7, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**63 - 1]
X = torch.tensor([EDGES, [-x for x in reversed(EDGES)], [7] * 9, EDGES[::-1]])
Y = X.flip(1).roll(1, 0)


def extremes(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """By each operator; the whole numbers of sizes and of flags are small."""
    limited = x.clamp(min=1), x.clamp(-3, 2**31 + 5), x.clamp(max=y.amax()), torch.relu(x), x.sign()
    reduced = x.amax(1), x.amin((0, 1)), x.max(), x.min(1, keepdim=True).values
    small = torch.arange(x.shape[1]).clamp(2, 5), (x > 2).long().clamp(max=0), x.argmax(1).clamp(min=1)
    return *limited, torch.maximum(x, y), torch.min(x, y), *reduced, *small


@pytest.mark.exports
@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
def test_what_is_written_as_comparisons(exporter: str, tmp_path: Path) -> None:
    model, file = computing(extremes), tmp_path / "m.onnx"
    axes = ({0: "b", 1: "n"},) * 2
    report = onnxpatch.export(
        model, (X[:, :5] % 50, Y[:, :5] % 50), file, exporter=exporter, dynamic_shapes=axes, check=False
    )
    assert "extremes of int64 written as comparisons" in "".join(report.notes)
    for x, y in ((X, Y), (X.T.clone(), Y.T.clone()), (X[:1], Y[:1])):
        for found, wanted in zip(onnxpatch.Session(file)(x, y), model(x, y), strict=True):
            assert torch.equal(found, wanted)
    # The three of sizes, positions and flags are as the exporter wrote them.
    kinds = Counter(node.op_type for node in onnx.load(file).graph.node)
    assert kinds["Clip"] + kinds["Max"] + kinds["Min"] >= 3
    assert not kinds["ReduceMax"] + kinds["ReduceMin"] + kinds["Relu"] + kinds["Sign"]


@pytest.mark.parametrize(("dtype", "changed"), [(1, 0), (6, 0), (7, 3)])
def test_other_dtypes_are_left(dtype: int, changed: int, tmp_path: Path) -> None:
    value, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    inner = onnx.helper.make_graph([node("Max", ["x", "x"], ["z"])], "inner", [], [value("z", dtype, None)])
    graph = onnx.helper.make_graph(
        [node("Cast", ["x"], ["w"], to=7), node("Max", ["x", "x"], ["y"]), node("NonZero", ["w"], ["p"]),
         node("Min", ["p", "p"], ["q"]), node("If", ["c"], ["v"], then_branch=inner, else_branch=inner)], "g",
        [value("x", dtype, ["n"]), value("c", 9, [])], [value(name, 0, None) for name in "yqv"],
    )  # fmt: skip
    for one, kind in zip(graph.output, (dtype, 7, dtype), strict=True):
        one.type.tensor_type.elem_type = kind
    file = tmp_path / "m.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10), file)
    before = file.read_bytes()
    assert compare_extremes(file) == changed
    assert (file.read_bytes() == before) is (changed == 0)
    onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])


def in_float64(x: torch.Tensor, half: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows = torch.arange(half.shape[0]) // 2
    return torch.erf(x).asin(), half.index_add(0, rows, half), x.mean(-1)


@pytest.mark.exports
@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
def test_an_operator_without_a_kernel_is_computed_in_float32(exporter: str, tmp_path: Path) -> None:
    args, axes = (torch.rand(4, 3, dtype=torch.float64), torch.randn(4, 3).half()), ({0: "b"},) * 2
    report = onnxpatch.export(
        computing(in_float64), args, tmp_path / "m.onnx", exporter=exporter, dynamic_shapes=axes, attempts="asked"
    )
    said = " ".join(report.notes)
    assert report.ok and all(op in said for op in ("Erf in float32", "Asin in float32", "Scatter"))
    # What has a kernel stays in float64.
    graph = onnx.load(tmp_path / "m.onnx").graph
    mean = next(node for node in graph.node if node.op_type == "ReduceMean")
    assert mean.input[0] == graph.input[0].name


def in_int16(x: torch.Tensor, by: torch.Tensor) -> tuple[torch.Tensor, ...]:
    limited = x.clamp(-30, 900), torch.maximum(x, by), x.amax(1), x.masked_fill(x > 3, 7), torch.relu(x)
    return x >> by, x.to(torch.uint8) << by, *limited, torch.nn.functional.pad(x, (1, 2)), x**2


@pytest.mark.exports
def test_small_whole_numbers_are_computed_in_int32(tmp_path: Path) -> None:
    x, by = torch.arange(-9999, 9999, 999, dtype=torch.int16).reshape(3, 7), torch.arange(-1, 20, dtype=torch.int16)
    args, axes = (x, by.reshape(3, 7)), ({0: "b", 1: "n"},) * 2
    report = onnxpatch.export(
        computing(in_int16), args, tmp_path / "m.onnx", exporter="trace", dynamic_shapes=axes, attempts="asked"
    )
    assert report.ok and "Where in int32, since onnxruntime's CPU has no kernel" in " ".join(report.notes)
    found = onnxpatch.Session(tmp_path / "m.onnx")(*args)
    assert [one.dtype for one in found] == [torch.int16] * 9


@pytest.mark.exports
def test_another_error_changes_nothing(tmp_path: Path) -> None:
    torch.onnx.export(torch.nn.ReLU(), (torch.randn(2),), str(tmp_path / "m.onnx"), dynamo=False)
    before = (tmp_path / "m.onnx").read_bytes()
    for said in ("two nodes with the same name", "Could not find an implementation for Relu(14) node"):
        assert cast_what_is_refused(tmp_path / "m.onnx", said) == ""
    assert onnx.load(tmp_path / "m.onnx") == onnx.load_from_string(before)


class Normed(torch.nn.Module):
    """In torch.autocast a product is float16, and the weights of a norm stay float32."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)

    @torch.autocast("cpu", torch.float16)
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.norm(self.linear(x)))


@pytest.mark.exports
def test_a_norm_of_two_dtypes_is_computed_in_float32() -> None:
    report = onnxpatch.export(Normed().eval(), (torch.randn(2, 4),), dynamic_shapes=({0: "b"},), exporter="trace")
    assert report.ok and any("in float32, since its inputs had two dtypes: 1 nodes" in note for note in report.notes)


@pytest.mark.exports
def test_a_mean_in_float64_is_divided_in_float64() -> None:
    x = torch.randn(5, 4, dtype=torch.float64)
    report = onnxpatch.export(
        computing(lambda x: torch.std_mean(x, True)), (x,), dynamic_shapes=({0: "n"},), exporter="dynamo"
    )
    assert report.ok and report.worst < 1e-12
    assert "Div in float64, since its inputs had two dtypes: 1 nodes" in report.notes


def between_int32(x: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, ...]:
    least = torch.min(torch.tensor(3), counts[0])
    return x[:, 1 : counts[0]], x[:, least : x.shape[1]], x[:, : counts[1] : 2]


@pytest.mark.exports
def test_slices_between_two_dtypes_are_between_int64(tmp_path: Path) -> None:
    counts = [torch.tensor(one, dtype=torch.int32) for one in ([3, 1], [2, 4], [1, 9])]
    x, axes = torch.randn(2, 9), ({1: "t"}, None)
    more = [(x[:, :6], counts[1]), (x[:, :5], counts[2])]
    report = onnxpatch.export(
        computing(between_int32), (x, counts[0]), tmp_path / "m.onnx", exporter="trace", dynamic_shapes=axes, data=more
    )
    assert report.ok and "Slice takes int64 places, which were of two dtypes; nodes: " in "".join(report.notes)
