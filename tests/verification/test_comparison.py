"""Comparing outputs: what counts as equal, what is said about what does not."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from onnxpatch.inputs.leaves import Inputs
from onnxpatch.results.checks import Checked
from onnxpatch.results.report import Report
from onnxpatch.verification.comparison import compare, compare_all
from onnxpatch.verification.eager import Eager
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.runner import judged


def test_right_within_tolerance_and_wrong_beyond() -> None:
    want = torch.tensor([100.0, 1.0])
    assert compare("y", want, np.array([100.05, 1.0], "float32")).ok
    found = compare("y", want, np.array([100.0, 1.2], "float32"))
    assert not found.ok and found.first_index == (1,) and found.expected == 1.0
    assert math.isclose(found.absolute, 0.2, rel_tol=1e-5) and math.isclose(found.relative, 0.002, rel_tol=1e-5)
    assert 0.999 < found.cosine <= 1


@pytest.mark.parametrize(
    ("want", "got", "says"),
    [
        (torch.zeros(2), np.zeros((1, 2), "float32"), "shape"),
        (torch.zeros(2), np.zeros(2, "int64"), "dtype int64, eager has float32"),
        (torch.tensor([1, 2]), np.array([1, 3]), "1 of 2 whole numbers"),
        (torch.tensor([True]), np.array([False]), "1 of 1 whole numbers or flags"),
        (torch.tensor([math.nan]), np.array([1.0], "float32"), "non-finite"),
        (torch.tensor([math.inf]), np.array([-math.inf], "float32"), "non-finite"),
        (torch.tensor([1.0]), np.array([math.nan], "float32"), "non-finite"),
    ],
)
def test_what_is_never_right(want: torch.Tensor, got: np.ndarray, says: str) -> None:
    assert says in compare("y", want, got, tolerance=1.0).reason


def test_equal_non_finite_values_and_empty_outputs_are_right() -> None:
    want = torch.tensor([math.nan, math.inf, 1.0])
    assert compare("y", want, want.numpy()).ok
    assert compare("y", torch.zeros(0, 3), np.zeros((0, 3), "float32")).ok


def test_half_precision_has_its_own_bound() -> None:
    want, got = torch.tensor([1.0], dtype=torch.float16), np.array([1.005], "float16")
    assert compare("y", want, got).ok
    assert not compare("y", want.float(), got.astype("float32")).ok


def test_complex_outputs_are_pairs_of_reals() -> None:
    want = torch.tensor([1 + 2j])
    assert compare("y", want, np.array([[1.0, 2.0]], "float32")).ok


def test_a_missing_output_is_the_finding() -> None:
    (only,) = compare_all(["a", "b"], [torch.zeros(1), torch.zeros(1)], [np.zeros(1)])
    assert only.reason.startswith("the file has 1 of the outputs a, b, the model returns 2 tensors: ")


def test_report_in_three_forms() -> None:
    bad = compare("y", torch.tensor([1.0]), np.array([2.0], "float32"))
    checks = [Checked("onnxruntime", "example", "example", {"b": 2})]
    checks.append(Checked("onnxruntime", "b=3", "size", {"b": 3}, (bad,), status="wrong"))
    report = Report("m.onnx", "Model", "trace", 18, checks=checks)
    assert not report.ok and report.first_wrong() is checks[1] and report.worst == 1.0
    assert "WRONG at 1 of 2" in str(report)
    assert report.to_markdown().startswith("### m.onnx: WRONG")
    read = json.loads(report.to_json())
    assert read["schema"] == 1 and read["ok"] is False and read["checks"][1]["outputs"][0]["found"] == 2.0


def test_no_verdict_anywhere_is_no_success() -> None:
    assert not Report("f", "m", checks=[Checked("r", "example", "example", {}, status="unsteady")]).ok


def test_a_column_of_small_numbers_has_its_own_bound() -> None:
    boxes, scores = torch.rand(2, 9, 4) * 1280, torch.rand(2, 9, 1)
    want = torch.cat([boxes, scores], -1)
    for axes in ((0, 1, 2), (0, 2, 1)):  # scores in the last axis, or among the channels
        halved = torch.cat([boxes, scores / 2], -1).permute(axes)
        told = compare("y", want.permute(axes), halved.numpy())
        assert not told.ok and "column" in told.reason
        rounded = want * (1 + 1e-6 * torch.rand(want.shape)) + 1e-4
        assert compare("y", want.permute(axes), rounded.permute(axes).numpy()).ok


def test_one_factor_is_told_from_noise_of_its_size() -> None:
    want, noise = torch.randn(4, 8), torch.randn(4, 8)
    assert "1.0003 times eager" in compare("y", want, want * 1.0003).reason
    assert compare("y", want, want + 3e-4 * noise / noise.abs().max() * want.abs().max()).ok
    assert compare("y", torch.ones(4, 8), torch.full((4, 8), 1.0003)).ok
    assert compare("y", want, want * 1.00003).ok


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_in_half_precision_the_large_columns_round_into_the_small_ones(dtype: torch.dtype) -> None:
    large, small = torch.rand(9, 4) * 100, torch.rand(9, 1)
    want = torch.cat([large, small], -1).to(dtype)
    eps = torch.finfo(dtype).eps
    assert compare("y", want, (want.float() + 100 * 2 * eps).to(dtype)).ok


def test_tiny_outputs_are_held_to_their_own_magnitude() -> None:
    want = torch.rand(3, 4) * 1e-9
    assert not compare("y", want, (want * 2).numpy()).ok
    assert compare("y", want, (want * (1 + 1e-5)).numpy()).ok


@pytest.mark.parametrize(("scale", "status"), [(1.0, "unsteady"), (0.0, "wrong")])
def test_where_eager_comes_and_goes_to_infinity_nothing_can_be_said(scale: float, status: str) -> None:
    class Logarithm(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.log((x - 0.5) * scale)

    x = torch.tensor([0.5, 0.75])
    eager = Eager(Logarithm(), Inputs(Logarithm(), (x,)))
    expected = eager.ask([x]).outputs or ()
    found = [np.array([-15.0, -1.386294], "float32")]
    head, probe = Checked("onnxruntime", "example", "example", {}), Probe("example", "example", {}, [x], expected)
    check = judged(head, ["y"], found, probe, eager, 1e-3)
    assert check.status == status and "non-finite" in check.outputs[0].reason
