"""prefer=: the best of the right files is delivered, by bytes or by time in the runtime."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch.attempts import attempt_log

pytestmark = pytest.mark.exports

X = (torch.randn(4, 3),)


@pytest.fixture
def wasteful(registry: onnxpatch.Registry) -> onnxpatch.Registry:
    """A patch that is right, and much larger and slower than what it stands for."""

    @onnxpatch.patch("torch.nn.ReLU", name="wasteful", why="a stand-in that is right and slow", registry=registry)
    class Wasteful:
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(40):
                x = x + torch.sin(x).sum() * 0
            return x.relu()

    return registry


@pytest.mark.parametrize("prefer", ["size", "latency"])
def test_the_best_of_the_right_files_is_delivered(prefer: str, wasteful: onnxpatch.Registry, tmp_path: Path) -> None:
    model, sizes = nn.Sequential(nn.ReLU()).eval(), ({0: "b"},)
    asked = {"exporter": "trace", "registry": wasteful, "dynamic_shapes": sizes}
    first = onnxpatch.export(model, X, tmp_path / "first.onnx", **asked)
    assert [row["patch"] for row in first.plan] == ["wasteful"]
    report = onnxpatch.export(model, X, tmp_path / "best.onnx", prefer=prefer, **asked)
    assert (
        report.ok and report.call.endswith("only=())") and [one.delivered for one in report.attempts] == [False, True]
    )
    figures = [one.bytes if prefer == "size" else one.milliseconds for one in report.attempts]
    assert figures[1] < figures[0]
    assert (tmp_path / "best.onnx").stat().st_size < (tmp_path / "first.onnx").stat().st_size
    assert sorted(one.name for one in tmp_path.iterdir()) == ["best.onnx", "first.onnx"]


def test_a_file_that_is_hardly_faster_does_not_replace_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_log, "_milliseconds", lambda way, proven: [1.0, 0.99][: len(proven)])
    report = onnxpatch.export(nn.Linear(3, 2).eval(), X, exporter="trace", prefer="latency")
    assert report.attempts[0].delivered and len(report.attempts) == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"prefer": "colour"}, "'latency' or 'size'"),
        ({"prefer": "size", "attempts": "asked"}, "leave out attempts='asked'"),
        ({"prefer": "size", "check": False}, "leave out check=False"),
    ],
)
def test_what_cannot_be_preferred_is_bad_input(options: dict[str, object], says: str) -> None:
    with pytest.raises(onnxpatch.InputError, match=says):
        onnxpatch.export(nn.ReLU(), X, **options)
