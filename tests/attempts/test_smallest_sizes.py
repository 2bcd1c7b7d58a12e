"""A file that is wrong at sizes far below the example's only: delivered with that bound said first."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import onnx
import pytest
import torch
from torch import nn

import onnxpatch
import onnxpatch.testing
from onnxpatch.exporters import exported
from onnxpatch.onnxfile.size_bounds import read_bounds
from tests.verified_models import DataBranch, Right

pytestmark = pytest.mark.exports

LENGTHS = ({0: "B", 1: "T"},)
X = (torch.randn(2, 64),)


class Short(nn.Module):
    """Another formula below `self.least` samples, which a trace does not see."""

    def __init__(self, least: int = 5) -> None:
        super().__init__()
        self.least = least

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] < self.least:
            return x.flip(1) * 2
        return x + 1


class EmptyBelow(nn.Module):
    """Eager's answer has no elements below 40 samples, and the graph's has."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :0] if x.shape[1] < 40 else x + 1


def made(model: nn.Module, file: Path | None = None, **options: object) -> onnxpatch.Report:
    """By tracing, without patches: which keeps the example's side of a branch."""
    given = {"exporter": "trace", "only": (), "attempts": "asked", **options}
    return onnxpatch.export(model.eval(), X, file, dynamic_shapes=LENGTHS, **given)


def test_the_bound_is_said_first_written_and_enforced(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    report = made(Short(), file)
    words = report.bounds["T"]
    assert report.ok and words.startswith("T >= 5 (wrong at 1, 2")
    assert f"right for {words} only" in str(report).splitlines()[0]
    proto = onnx.load(file)
    assert [dim.dim_param for dim in proto.graph.input[0].type.tensor_type.shape.dim] == ["B", "T_min5"]
    (bound,) = read_bounds({entry.key: entry.value for entry in proto.metadata_props})
    assert bound.words == words and {1, 2} <= set(bound.wrong)
    session = onnxpatch.Session(file)
    for size in (5, 6, 63, 300):
        x = torch.randn(3, size)
        assert torch.allclose(session(x), x + 1)
    with pytest.raises(onnxpatch.InputError, match=r"this file is right for T >= 5 \(wrong at 1, 2"):
        session(torch.randn(2, 4))
    again = onnxpatch.verify(file, Short(), X, dynamic_shapes=LENGTHS)
    assert again.ok and again.bounds == {"T": words}


def test_sizes_at_which_eager_answers_with_nothing_are_left_out_too() -> None:
    report = made(EmptyBelow())
    assert report.ok and report.bounds["T"].startswith("T >= 40 (wrong at")


def test_a_file_that_is_wrong_nearer_to_the_example_is_refused() -> None:
    # 9 samples are more than an eighth of the example's 64.
    with pytest.raises(
        onnxpatch.VerificationError, match=r"declare Dim\('T', min=10\), or export with bounds='narrow'"
    ):
        made(Short(10))


def test_never_and_the_assertion_of_tests_refuse_it() -> None:
    with pytest.raises(onnxpatch.VerificationError):
        made(Short(), bounds="never")
    given = {"exporters": "trace", "only": (), "dynamic_shapes": LENGTHS}
    with pytest.raises(AssertionError, match="WRONG"):
        onnxpatch.testing.assert_exports(Short().eval(), X, **given)
    assert onnxpatch.testing.assert_exports(Short().eval(), X, **given, allow_bounds=True)["trace"].bounds


def test_what_is_right_everywhere_wins() -> None:
    """Wrong at small sizes under trace, right everywhere under dynamo with the kit's patches: that one is delivered."""

    class Half(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.shape[1] > 3 else x * (1 + (x.shape[1] > 3)) * 2

    report = onnxpatch.export(Half().eval(), X, dynamic_shapes=LENGTHS, exporter="auto")
    assert report.ok and not report.bounds


def test_branches_are_not_tried_where_a_bounded_file_was_made() -> None:
    report = onnxpatch.export(Short().eval(), X, dynamic_shapes=LENGTHS, exporter="trace")
    assert report.bounds and not any(one.branches for one in report.attempts)
    assert [one.delivered for one in report.attempts].count(True) == 1
    asked = onnxpatch.export(Short().eval(), X, dynamic_shapes=LENGTHS, exporter="trace", branches=True)
    assert asked.ok and not asked.bounds


def slow_where(wanted: Callable[[Any], bool]) -> FunctionType:
    """The exporter, which spends up to 20 s of processor time first for the requests that are wanted."""
    run = exported.run_exporter

    def slow(request: object, path: Path) -> object:
        start, waits = time.process_time(), wanted(request)
        while waits and time.process_time() - start < 20:
            pass
        return run(request, path)

    return cast(FunctionType, slow)


def test_a_later_attempt_has_a_limit_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first attempt is wrong, the second does not end: it is cut off, and the first one's error is raised."""
    monkeypatch.setattr("onnxpatch.attempts.attempt_log._LEAST_SECONDS", 0.3)
    monkeypatch.setattr("onnxpatch.attempts.attempt_log._TIMES_THE_FIRST", 0)
    slow = slow_where(lambda request: request.patching["branches"])
    monkeypatch.setattr("onnxpatch.attempts.one_attempt.run_exporter", slow)
    with pytest.raises(onnxpatch.VerificationError) as caught:
        onnxpatch.export(DataBranch().eval(), X, dynamic_shapes=LENGTHS, exporter="trace")
    assert "0 s of processor time, the limit of a later attempt" in str(caught.value)
    assert "attempt 2, branches=True (at most 0 s of processor time)" in capsys.readouterr().err


def test_a_first_attempt_that_expands_expressions_of_sizes_ends_and_plain_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("onnxpatch.attempts.one_attempt._MOST_IN_SYMPY", 0.1)
    monkeypatch.setattr("onnxpatch.limits._LOOK", 0.02)
    slow = slow_where(lambda request: request.patching.get("only") != ())
    slow = FunctionType(slow.__code__, {**globals(), "__name__": "sympy.core"}, closure=slow.__closure__)
    monkeypatch.setattr("onnxpatch.attempts.one_attempt.run_exporter", slow)
    report = onnxpatch.export(Right().eval(), (torch.randn(2, 3, 8, 8),), exporter="dynamo")
    assert [one.delivered for one in report.attempts] == [False, True]
    assert "s of processor time on expressions of sizes" in report.attempts[0].error
    monkeypatch.setattr("onnxpatch.attempts.attempt_log._ALL_SECONDS", 0.1)  # which the first attempt has used up
    with pytest.raises(onnxpatch.ExportError, match="on expressions of sizes") as caught:
        onnxpatch.export(Right().eval(), (torch.randn(2, 3, 8, 8),), exporter="dynamo")
    assert not caught.value.attempts
