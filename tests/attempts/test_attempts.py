"""export goes on where the first attempt fails: what is delivered, what is reported, and what it leaves behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.jit import is_tracing

import onnxpatch
from onnxpatch.onnxfile.metadata import read
from onnxpatch.verification.eager import Eager
from tests.fingerprint import fingerprint
from tests.verified_models import BatchBranch, DataBranch, Right

pytestmark = pytest.mark.exports

X = (torch.rand(2, 3) + 0.1,)
ROWS = ({0: "b"},)


@pytest.fixture
def spoilt(registry: onnxpatch.Registry) -> onnxpatch.Registry:
    """Patches of which one raises, one is wrong and one is right."""

    @onnxpatch.patch("torch.nn.Tanh", name="raises", why="a stand-in that fails", registry=registry)
    class Raising:
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.no_such_method()

    @onnxpatch.patch("torch.nn.ReLU", name="wrong", why="a stand-in that computes something else", registry=registry)
    class Wrong:
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    @onnxpatch.patch("torch.nn.Sigmoid", name="fine", why="a stand-in that is right", registry=registry)
    class Fine:
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 1 / (1 + torch.exp(-x))

    return registry


def names(report: onnxpatch.Report) -> list[str]:
    return [one.name for one in report.attempts]


def test_a_model_that_is_right_the_first_time_pays_nothing(tmp_path: Path) -> None:
    report = onnxpatch.export(Right().eval(), (torch.randn(2, 3, 8, 8),), tmp_path / "m.onnx", exporter="trace")
    assert names(report) == ["as called"] and report.attempts[0].delivered
    assert "attempt" not in str(report) and report.call == "onnxpatch.export(model, ..., exporter='trace')"


class InMethods(nn.Module):
    """Neither a method that forward calls, nor `len`, leaves a comparison of sizes that eager records."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.steps(x) if self.is_long(x) else x.sum(1)

    def steps(self, x: torch.Tensor) -> torch.Tensor:
        state = x[:, 0]
        for step in range(x.shape[1]):
            state = state / 2 + x[:, step]
        return state

    def is_long(self, x: torch.Tensor) -> bool:
        return len(x) > 1


class OfRows(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([row.cumsum(0)[-1] for row in x.transpose(0, 1)])


@pytest.mark.parametrize("model", [InMethods, OfRows])
def test_loops_and_branches_in_methods_are_exported_whole(model: type[nn.Module], tmp_path: Path) -> None:
    report = onnxpatch.export(
        model(), (torch.rand(2, 3, 2),), tmp_path / "m.onnx", dynamic_shapes=({0: "b", 1: "t"},), exporter="trace"
    )
    assert report.ok and not report.bounds and names(report)[-1] == "branches=True"


@pytest.mark.parametrize("model", [DataBranch, BatchBranch])
def test_a_branch_is_exported_whole(model: type[nn.Module], tmp_path: Path) -> None:
    file, made = tmp_path / "m.onnx", model().eval()
    before = fingerprint(made)
    report = onnxpatch.export(made, X, file, dynamic_shapes=ROWS, exporter="trace")
    assert report.ok and names(report) == ["as called", "branches=True"]
    assert [one.delivered for one in report.attempts] == [False, True]
    assert report.attempts[0].verdict == "wrong" and "relative error" in report.attempts[0].error
    assert report.call == "onnxpatch.export(model, ..., exporter='trace', branches=True)"
    stamped = read(onnx.load(file))
    assert stamped is not None and stamped.call == report.call
    assert fingerprint(made) == before and [one.name for one in tmp_path.iterdir()] == ["m.onnx"]
    assert onnxpatch.verify(file, made, X, dynamic_shapes=ROWS).ok


class RawInExports(nn.Module):
    """What its author returns in an export is something else, by one of the ways to ask for one."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.head = nn.Linear(3, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        exported = {"onnx": torch.onnx.is_in_onnx_export(), "any": is_tracing() or torch.compiler.is_exporting()}
        scores = self.head(x)
        return scores if exported[self.way] else scores.softmax(-1)


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
@pytest.mark.parametrize("way", ["onnx", "any"])
def test_what_a_model_does_only_in_an_export_is_left_out(way: str, exporter: onnxpatch.Exporter) -> None:
    model = RawInExports(way).eval()
    report = onnxpatch.export(model, X, None, dynamic_shapes=ROWS, exporter=exporter)
    assert [one.verdict for one in report.attempts] == ["wrong", "right"]
    assert report.call.endswith("as_in_eager=True)")
    with pytest.raises(onnxpatch.VerificationError):
        onnxpatch.export(model, X, None, dynamic_shapes=ROWS, exporter=exporter, attempts="asked")


def test_three_attempts_a_patch_left_out_then_branches(spoilt: onnxpatch.Registry, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Tanh(), DataBranch()).eval()
    report = onnxpatch.export(model, X, tmp_path / "m.onnx", exporter="trace", registry=spoilt)
    assert report.ok
    assert names(report) == ["as called", "without 'raises'", "without 'raises', branches=True"]
    first = report.attempts[0]
    assert (first.verdict, first.stand_in, first.module) == (
        "refused",
        "raises",
        "0",
    ) and "no_such_method" in first.error
    assert __file__ in first.line
    assert (
        "attempt 1: refused" in report.table()
        and "attempt 3 of 3 worked; next time: onnxpatch.export(model, ...," in str(report)
    )
    again = onnxpatch.export(
        model, X, tmp_path / "m.onnx", exporter="trace", registry=spoilt, exclude="raises", branches=True
    )
    assert names(again) == ["as called"] and again.call == report.call


def test_the_patch_that_made_it_worse_is_named_and_left_out_alone(spoilt: onnxpatch.Registry) -> None:
    alone = onnxpatch.export(nn.Sequential(nn.ReLU()).eval(), (-X[0],), exporter="trace", registry=spoilt)
    assert names(alone) == ["as called", "plain torch.onnx.export"] and alone.call.endswith("only=())")
    assert "the patch 'wrong' made this export worse" in str(alone) and "'wrong'" in alone.to_markdown()
    model = nn.Sequential(nn.ReLU(), nn.Sigmoid(), nn.Tanh()).eval()
    report = onnxpatch.export(model, (-X[0],), exporter="trace", registry=spoilt)
    delivered = next(one for one in report.attempts if one.delivered)
    assert delivered.exclude == ("raises", "wrong") and [row["patch"] for row in report.plan] == ["fine"]
    assert "the patches 'raises', 'wrong' made this export worse" in str(report)


def test_eager_is_asked_once_for_all_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[torch.Tensor] = []
    ask = Eager.ask
    monkeypatch.setattr(Eager, "ask", lambda self, values, **how: asked.append(values[0]) or ask(self, values, **how))
    with pytest.raises(onnxpatch.VerificationError):
        onnxpatch.export(DataBranch().eval(), X, exporter="trace", dynamic_shapes=ROWS, attempts="asked")
    once = len(asked)
    asked.clear()
    report = onnxpatch.export(DataBranch().eval(), X, exporter="trace", dynamic_shapes=ROWS)
    # No rows are tried of a right file alone.
    assert len(report.attempts) == 2 and len([values for values in asked if len(values)]) == once > 0


def test_where_nothing_helps_the_first_error_is_raised_with_all_that_was_tried(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.ldl_factor(x @ x.T)[0]

    with pytest.raises(onnxpatch.ExportError, match=r"^dynamo export refused Odd") as caught:
        onnxpatch.export(Odd().eval(), X, tmp_path / "m.onnx", exporter="auto")
    assert caught.value.__cause__ is not None and not list(tmp_path.iterdir())
    assert "2 attempts were made, and none is right" in str(caught.value)
    assert "attempt 2, exporter='trace': refused" in str(caught.value) and len(caught.value.attempts) == 2
    with pytest.raises(onnxpatch.ExportError) as caught:
        onnxpatch.export(Odd().eval(), X, tmp_path / "m.onnx", exporter="trace")
    assert "attempts were made" not in str(caught.value)


class OutOfTorch(nn.Module):
    """NumPy computes it: a trace keeps the example's numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.apply_along_axis(np.sort, 1, x.numpy()))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize(
    ("exporter", "advice"),
    [
        ("dynamo", "write what NumPy computes there with torch's functions"),
        ("trace", "onnxpatch.export(model, ..., exporter='auto') goes on with the dynamo exporter"),
    ],
)
def test_what_to_type_where_numpy_computes(exporter: onnxpatch.Exporter, advice: str) -> None:
    with pytest.raises((onnxpatch.ExportError, onnxpatch.VerificationError)) as caught:
        onnxpatch.export(OutOfTorch().eval(), X, exporter=exporter, dynamic_shapes=ROWS)
    assert str(caught.value).splitlines()[-1].startswith(f"next: {advice}")


class Vectors(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigh(x.T @ x).eigenvectors


def test_what_to_type_where_neither_exporter_has_the_operator() -> None:
    with pytest.raises(onnxpatch.ExportError, match="next: neither exporter has an ONNX form of aten::linalg_eigh"):
        onnxpatch.export(Vectors().eval(), X, exporter="trace")


class Lower(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tril(x)


class MaskedBits(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.bitwise_and(x.long(), 3)


@pytest.mark.parametrize(("model", "opset"), [(Lower(), 14), (MaskedBits(), 18)], ids=["tril", "bitwise_and"])
def test_what_to_type_where_the_opset_is_too_low(model: nn.Module, opset: int, tmp_path: Path) -> None:
    with pytest.raises(onnxpatch.ExportError) as caught:
        onnxpatch.export(model.eval(), X, exporter="trace", opset_version=12)
    typed = str(caught.value).splitlines()[-1].removeprefix("next: ").partition(": ")[0]
    file = tmp_path / "m.onnx"
    report = eval(typed.replace("...", "X, file"), {"onnxpatch": onnxpatch, "model": model, "X": X, "file": file})
    assert report.ok and report.opset == opset


def test_auto_takes_the_other_exporter(tmp_path: Path) -> None:
    class Traceable(nn.Module):
        exported = staticmethod(torch.compiler.is_exporting)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.exported():
                raise RuntimeError("not under torch.export")
            return x + 1

    report = onnxpatch.export(Traceable().eval(), X, tmp_path / "m.onnx", exporter="auto")
    assert report.ok and report.exporter == "trace" and report.call == "onnxpatch.export(model, ..., exporter='trace')"
    assert names(report)[-1] == "exporter='trace'"


def test_auto_takes_the_other_exporter_for_an_opset_that_dynamo_does_not_write() -> None:
    asked = {"opset_version": 9, "dynamic_shapes": ROWS}
    with pytest.raises(onnxpatch.InputError, match="cannot write"):
        onnxpatch.export(nn.Linear(3, 2).eval(), X, **asked)
    report = onnxpatch.export(nn.Linear(3, 2).eval(), X, exporter="auto", **asked)
    assert report.ok and (report.exporter, report.opset) == ("trace", 9)
    assert report.call == "onnxpatch.export(model, ..., exporter='trace', opset_version=9)"


def test_bad_input_is_one_error_and_no_attempt(tmp_path: Path) -> None:
    for options, says in (
        ({"attempts": "many"}, "use 'auto' or 'asked'"),
        ({"exporter": "auto", "dynamo": True}, "disagree"),
        ({"dynamic_shapes": {"y": {0: "b"}}}, "only x"),
        ({"exclude": "no-such-patch"}, "no-such-patch"),
    ):
        with pytest.raises((onnxpatch.InputError, onnxpatch.UnknownPatchError), match=says) as caught:
            onnxpatch.export(DataBranch().eval(), X, tmp_path / "m.onnx", **options)
        assert caught.value.attempts == () and not list(tmp_path.iterdir())


def test_an_interrupt_between_attempts_leaves_nothing(tmp_path: Path) -> None:
    model = DataBranch().eval()
    before = fingerprint(model)

    def interrupt(stage: str, done: int, of: int) -> None:
        if stage.startswith("attempt 2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        onnxpatch.export(model, X, tmp_path / "m.onnx", exporter="trace", progress=interrupt)
    assert fingerprint(model) == before and not list(tmp_path.iterdir())


def test_the_limit_bounds_the_whole_and_progress_names_the_attempt() -> None:
    stages: list[str] = []
    onnxpatch.export(
        DataBranch().eval(), X, exporter="trace", max_seconds=600, progress=lambda stage, *_: stages.append(stage)
    )
    assert stages[0] == "onnxruntime" and stages[-1] == "attempt 2, branches=True: onnxruntime"


def test_no_attempt_follows_one_that_took_the_callers_time() -> None:
    class Slow(DataBranch):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            while torch.jit.is_tracing():
                pass
            return super().forward(x)

    with pytest.raises(onnxpatch.ExportError, match="did not end within max_seconds=1") as caught:
        onnxpatch.export(Slow().eval(), X, exporter="trace", max_seconds=1)
    assert caught.value.attempts == ()
