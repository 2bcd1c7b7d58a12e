"""A graph that never ends is stopped, in every runtime, and the answer names the limit."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import onnxpatch
from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.onnxfile.runtimes.interface import DEFAULT_SECONDS
from tests.onnxfile.hostile import endless, exploding, structured

pytestmark = pytest.mark.exports

X = torch.tensor([1.0, 2.0])


class Twice(torch.nn.Module):
    def forward(self, x):
        return x * 2


def test_session_stops_a_loop_that_never_ends(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    session = onnxpatch.Session(endless(tmp_path / "m.onnx"), max_seconds=0.3)
    for _ in range(2):
        start = time.perf_counter()
        with pytest.raises(onnxpatch.RunError, match=r"(?s)stopped after 0\.3 s.*max_seconds") as caught:
            session(X)
        assert caught.value.stopped and time.perf_counter() - start < 10
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("verb", [onnxpatch.Session, lambda file: onnxpatch.verify(file, Twice().eval(), (X,))])
def test_functions_that_explode_are_refused_before_they_are_loaded(verb: Any, tmp_path: Path) -> None:
    file = exploding(tmp_path / "m.onnx")
    with pytest.raises(onnxpatch.InputError, match=r"(?s)functions call each other so .* 2,199,023,255,552 nodes"):
        verb(file)
    with pytest.raises(onnxpatch.InputError, match="the model given as bytes: its functions"):
        onnxpatch.Session(file.read_bytes())
    assert torch.equal(onnxpatch.Session(exploding(file, 3))(X), X)


@pytest.mark.parametrize("runtime", ["onnxruntime", "reference"])
def test_verify_stops_it_and_calls_it_wrong(runtime: str, tmp_path: Path) -> None:
    file = endless(tmp_path / "m.onnx")
    onnxpatch.verify(file, Twice(), (X,), runtime=runtime, max_seconds=0.01, guards=False)  # imports what it needs
    start = time.perf_counter()
    report = onnxpatch.verify(file, Twice(), (X,), runtime=runtime, max_seconds=0.3, guards=False)
    assert not report.ok and time.perf_counter() - start < 60
    assert [check.status for check in report.checks] == ["refused"]  # the other inputs are not waited for
    assert "stopped after 0.3 s" in report.checks[0].error and "more inputs were not tried" in str(report)


class Long(torch.nn.Module):
    def forward(self, x):
        return onnxpatch.while_loop(lambda x: x.max() < 20_000)(lambda x: x + 1)(x)


def test_export_has_the_limit_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxpatch.verification.probe.DEFAULT_SECONDS", 0.001)
    with pytest.raises(onnxpatch.VerificationError, match=r"stopped after 0\.001 s"):
        onnxpatch.export(Long().eval(), (X,), tmp_path / "m.onnx", dynamo=False)
    with pytest.raises(onnxpatch.InputError, match="max_seconds=0"):
        onnxpatch.export(Long().eval(), (X,), tmp_path / "m.onnx", dynamo=False, max_seconds=0)
    assert not list(tmp_path.iterdir())


def test_the_command_names_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from onnxpatch.cli.app import app

    endless(tmp_path / "m.onnx")
    (tmp_path / "models.py").write_text(
        "import torch\nclass Twice(torch.nn.Module):\n    def forward(self, x): return x * 2\n"
    )
    monkeypatch.chdir(tmp_path)
    given = ["verify", "m.onnx", "models.py:Twice", "-i", "x=float32[4]", "--max-seconds"]
    done = CliRunner().invoke(app, [*given, "0.3"])
    assert done.exit_code == 1 and "stopped after 0.3 s" in done.output
    assert CliRunner().invoke(app, [*given, "0"]).exit_code == 2


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), "3", True])
def test_limits_are_positive_numbers(wrong: object) -> None:
    with pytest.raises(onnxpatch.InputError, match="max_seconds="):
        onnxpatch.Session(structured({"kind": "tensor", "name": "y"}), max_seconds=wrong)


def test_without_a_limit_and_with_the_default() -> None:
    file = structured({"kind": "tensor", "name": "y"})
    for limit in (None, float("inf"), DEFAULT_SECONDS):
        assert onnxpatch.Session(file, max_seconds=limit)(X[None]).tolist() == [[1.0, 2.0]]


def test_the_watching_thread_ends_with_its_runs(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(structured({"kind": "tensor", "name": "y"}))
    graph = Graph(tmp_path / "m.onnx")
    for _ in range(50):
        graph.run({"x": X[None]})
    watching = [thread for thread in threading.enumerate() if thread.name == "onnxpatch-run-limit"]
    assert watching
    for thread in watching:
        thread.join(5)
        assert not thread.is_alive()
    assert graph.run({"x": X[None]})[0].tolist() == [[1.0, 2.0]]


def test_runs_from_several_threads_have_a_limit_each(tmp_path: Path) -> None:
    session = onnxpatch.Session(endless(tmp_path / "m.onnx"), max_seconds=0.4)
    told: list[str] = []

    def run() -> None:
        try:
            session(X)
        except onnxpatch.RunError as error:
            told.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(told) == 3
