"""`verify(compare=)`: how far a file that is meant to differ is from the model, output by output."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import onnxpatch
from onnxpatch.results.quantized_distance import closeness, distances

pytestmark = pytest.mark.exports  # verify reads the model's conditions on sizes by torch.export

RIGHT = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype="float32")


class Scores(nn.Module):
    """(B, 3) -> the same, (B, 3)."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.from_numpy(RIGHT).clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def written(path: Path, weight: np.ndarray, kind: int = TensorProto.FLOAT) -> Path:
    """`x @ weight`, in the weight's own dtype."""
    value = lambda name: helper.make_tensor_value_info(name, kind, ["B", 3])  # noqa: E731
    nodes = [helper.make_node("MatMul", ["x", "w"], ["scores"])]
    graph = helper.make_graph(nodes, "g", [value("x")], [value("scores")], [numpy_helper.from_array(weight, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    return path


@pytest.fixture
def rough(tmp_path: Path) -> Path:
    """A file that is off by a hundredth."""
    return written(tmp_path / "rough.onnx", RIGHT + np.float32(0.01) * np.eye(3, k=1, dtype="float32"))


def verified(file: Path, compare: str | None) -> onnxpatch.Report:
    return onnxpatch.verify(file, Scores(), (torch.randn(40, 3),), compare=compare)


def test_a_file_off_by_a_hundredth_is_close_by_each_measure_and_wrong_by_value(rough: Path) -> None:
    assert verified(rough, None).verdict == "wrong"
    for measure in ("top1", "cosine", "relative"):
        report = verified(rough, measure)
        assert report.ok, report
        (far,) = distances(report.checks)
        assert far.output == "scores"
        assert 0.0 < far.relative <= 0.02
        assert 0.999 < far.cosine < 1.0
        assert far.top1 > 0.95
        assert f"close ({report.compare})" in str(report)
        assert far.sentence() in str(report).splitlines()[1]
        assert far.sentence() in report.to_markdown()


def test_a_threshold_of_ones_own_decides(rough: Path) -> None:
    report = verified(rough, "relative=0.001")
    assert report.verdict == "wrong"
    assert "at most 0.001 is close" in str(report)
    assert "FAR at" in str(report)
    assert not report.right_within  # no size is at fault
    assert verified(rough, "cosine=0.9999").ok
    assert not verified(rough, "cosine=1").ok


def test_another_class_for_each_row_is_far_in_top1_alone(tmp_path: Path) -> None:
    x = torch.tensor([[1.0, 0.99, 0.0], [0.99, 1.0, 0.0]]).repeat(20, 1)
    swapped = written(tmp_path / "swapped.onnx", RIGHT[:, [1, 0, 2]])
    reports = {name: onnxpatch.verify(swapped, Scores(), (x,), compare=name) for name in ("top1", "cosine")}
    assert reports["top1"].checks[0].outputs[0].top1 == 0.0
    assert not reports["top1"].checks[0].ok
    assert reports["cosine"].checks[0].ok


def test_rows_of_all_comparisons_are_counted_together() -> None:
    one = onnxpatch.results.checks.OutputParity("y", (1, 3), (1, 3), "float32", "float32", cosine=1.0, top1=0.0)
    many = onnxpatch.results.checks.OutputParity("y", (99, 3), (99, 3), "float32", "float32", cosine=1.0, top1=1.0)
    checks = [onnxpatch.results.checks.Checked("onnxruntime", "example", "example", {}, (p,)) for p in (one, many)]
    assert all(check.ok for check in closeness("top1=0.95").judged(checks))
    assert [check.ok for check in closeness("top1=0.995").judged(checks)] == [False, True]


def test_what_is_no_rounding_stays_wrong_at_any_threshold(tmp_path: Path) -> None:
    weight = RIGHT.copy()
    weight[0, 0] = np.nan
    report = verified(written(tmp_path / "nan.onnx", weight), "relative=1")
    assert "non-finite values differ" in str(report)


def test_a_file_in_float16_is_fed_in_float16(tmp_path: Path) -> None:
    file = written(tmp_path / "half.onnx", RIGHT.astype("float16"), TensorProto.FLOAT16)
    with pytest.raises(onnxpatch.InputError, match="is float16"):
        verified(file, None)
    assert verified(file, "relative=0.001").ok


def test_whole_numbers_are_counted_by_the_equal_ones(tmp_path: Path) -> None:
    class Best(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.argmax(1)

    file = tmp_path / "best.onnx"
    onnxpatch.export(Best(), (torch.randn(8, 3),), file, dynamic_shapes=({0: "B"},), exporter="trace")
    report = onnxpatch.verify(file, Best(), (torch.randn(8, 3),), compare="top1")
    assert report.ok
    assert distances(report.checks)[0].top1 == 1.0


def test_a_quantized_file_that_is_wrong_by_value_names_the_measures(rough: Path, tmp_path: Path) -> None:
    file = written(tmp_path / "half.onnx", (RIGHT + np.float16(0.1)).astype("float16"), TensorProto.FLOAT16)
    report = onnxpatch.verify(file, Scores().half(), (torch.randn(4, 3).half(),))
    assert "compare='cosine'" in report.advice
    assert not any(guard.harmful for guard in report.guards)
    assert "compare=" not in verified(rough, None).advice


@pytest.mark.parametrize("text", ["kl", "cosine=2", "cosine=", "top1=x", 0.9])
def test_another_measure_is_refused(text: object) -> None:
    with pytest.raises(onnxpatch.InputError, match=r"top1=0\.95, cosine=0\.99, relative=0\.1"):
        closeness(text)  # type: ignore[arg-type]
