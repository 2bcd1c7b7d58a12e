"""Every runtime gives what eager gives, says what it refuses, and stops at its limit; distributions add more."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch.onnxfile import runtime
from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.onnxfile.runtimes import openvino_child
from onnxpatch.onnxfile.runtimes.interface import REFERENCE, Runtime
from tests.onnxfile.hostile import endless

pytestmark = pytest.mark.exports

X = torch.randn(2, 5)
FREE = ({0: "batch", 1: "width"},)


def needing(runtime: str) -> None:
    if runtime == "openvino":
        pytest.importorskip("openvino", reason="the extra [openvino] is not installed")


class Scaled(nn.Module):
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(3.0, dtype=dtype))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x * self.scale).flatten(), x.argmax(1)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runtimes") / "m.onnx"
    onnxpatch.export(Scaled().eval(), (X,), path, dynamic_shapes=FREE, dynamo=False, check=False)
    return path


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino", "reference"])
def test_a_right_file_is_right_and_a_wrong_one_is_wrong_in_every_runtime(file: Path, runtime: str) -> None:
    needing(runtime)
    model = Scaled().eval()
    report = onnxpatch.verify(file, model, (X,), dynamic_shapes=FREE, runtime=runtime)
    assert report.ok and report.runtime == runtime and {check.stage for check in report.checks} == {runtime}
    assert {check.sizes["width"] for check in report.checks} > {5}
    with torch.no_grad():
        model.scale *= 2
    assert not onnxpatch.verify(file, model, (X,), dynamic_shapes=FREE, runtime=runtime).ok


def test_several_runtimes_each_have_their_checks(file: Path) -> None:
    report = onnxpatch.verify(file, Scaled().eval(), (X,), runtime=["onnxruntime", "reference", "onnxruntime"])
    assert report.ok and report.runtime == "onnxruntime, reference"
    stages = [check.stage for check in report.checks]
    assert stages.count("onnxruntime") == stages.count("reference") == len(stages) / 2 > 1


class Lying(type(REFERENCE)):
    name = "lying"

    def load(self, model, providers):
        loaded = super().load(model, providers)

        class Doubled:
            def run(self, names, feed, seconds):
                return [np.asarray(value * 2) for value in loaded.run(names, feed, seconds)]

        return Doubled()


class Entry:
    """An entry point as importlib.metadata gives it."""

    value = "somewhere:Thing"

    def __init__(self, name: str, loaded: object) -> None:
        self.name, self._loaded = name, loaded

    def load(self) -> object:
        if isinstance(self._loaded, Exception):
            raise self._loaded
        return self._loaded


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch):
    """Distributions that add a runtime, one that is broken, and one that takes a name that is there."""

    class Taken(Lying):
        name = "onnxruntime"

    entries = [Entry("lying", Lying), Entry("broken", ImportError("no module acme")), Entry("taken", Taken)]
    monkeypatch.setattr(metadata, "entry_points", lambda group: entries if group == runtime.ENTRY_POINTS else ())
    runtime.runtimes.cache_clear()
    yield
    runtime.runtimes.cache_clear()


def test_a_distribution_adds_a_runtime_and_a_file_must_be_right_in_it_too(file: Path, others: None) -> None:
    report = onnxpatch.verify(file, Scaled().eval(), (X,), runtime=("onnxruntime", "lying"))
    assert {check.stage for check in report.checks if not check.ok} == {"lying"}
    with pytest.raises(onnxpatch.VerificationError, match="lying at example"):
        onnxpatch.export(Scaled().eval(), (X,), dynamo=False, runtime=("onnxruntime", "lying"))


def test_a_broken_one_is_named_and_takes_nobody_with_it(file: Path, others: None) -> None:
    assert onnxpatch.verify(file, Scaled().eval(), (X,)).ok
    told = (
        r"(?s)runtime='broken' is not known.*entry point broken = somewhere:Thing could not be loaded: .*no module acme"
    )
    with pytest.raises(onnxpatch.InputError, match=told):
        onnxpatch.verify(file, Scaled().eval(), (X,), runtime="broken")
    found, failures = runtime.runtimes()
    assert type(found["onnxruntime"]).__module__.startswith("onnxpatch.") and len(failures) == 2


def test_a_runtime_that_is_not_installed_is_refused_before_the_export(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxpatch.onnxfile.runtimes.tensorrt import RUNTIME

    monkeypatch.setattr(RUNTIME, "available", lambda: False)
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: pytest.fail("it exported first"))
    with pytest.raises(onnxpatch.InputError, match="tensorrt is not installed: pip install tensorrt"):
        onnxpatch.export(Scaled().eval(), (X,), dynamo=False, runtime=["onnxruntime", "tensorrt"])


def test_providers_that_are_not_there_are_refused_and_never_replaced(file: Path) -> None:
    model = Scaled().eval()
    with pytest.raises(onnxpatch.InputError, match=r"(?s)has no AcmeExecutionProvider, it has .*CPUExecutionProvider"):
        onnxpatch.verify(file, model, (X,), providers=["AcmeExecutionProvider"])
    with pytest.raises(onnxpatch.InputError, match=r"(?s)providers=.* are onnxruntime's"):
        onnxpatch.verify(file, model, (X,), runtime="reference", providers=["CPUExecutionProvider"])
    report = onnxpatch.verify(file, model, (X,), providers=[("CPUExecutionProvider", {})])
    assert report.ok


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu(file: Path) -> None:
    report = onnxpatch.verify(file, Scaled().eval(), (X,), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert report.ok


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_other_dtypes_in_openvino(tmp_path: Path, dtype: torch.dtype) -> None:
    needing("openvino")
    model, x = Scaled(dtype).eval(), X.to(dtype)
    report = onnxpatch.export(model, (x,), tmp_path / "m.onnx", dynamic_shapes=FREE, dynamo=False, runtime="openvino")
    assert report.ok, str(report)


class Twice(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_a_loop_that_never_ends_is_stopped_in_openvino(tmp_path: Path) -> None:
    needing("openvino")
    start = time.perf_counter()
    report = onnxpatch.verify(endless(tmp_path / "m.onnx"), Twice(), (X[0],), runtime="openvino", max_seconds=3)
    assert [check.status for check in report.checks] == ["refused"] and "stopped after" in report.checks[0].error
    assert time.perf_counter() - start < 60


class Counting(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return onnxpatch.while_loop(lambda x: x.max() < 20)(lambda x: x + 1)(x)


def test_a_loop_that_ends_runs_in_openvino(tmp_path: Path) -> None:
    needing("openvino")
    onnxpatch.export(Counting().eval(), (X[0],), tmp_path / "m.onnx", dynamo=False, check=False)
    limited = Graph(tmp_path / "m.onnx", "openvino", 60)
    assert np.allclose(limited.run({"x": X[0]})[0], Counting()(X[0]), atol=1e-5)


def test_a_loop_without_a_limit_runs_in_openvino(tmp_path: Path) -> None:
    """In a process of its own: a process in which OpenVINO ran a loop has crashed later, at an alarm signal."""
    needing("openvino")
    onnxpatch.export(Counting().eval(), (X[0],), tmp_path / "m.onnx", dynamo=False, check=False)
    np.save(tmp_path / "x.npy", X[0])
    code = (
        "import numpy as np; from onnxpatch.onnxfile.runtime import Graph; "
        "np.save('y.npy', Graph('m.onnx', 'openvino', None).run({'x': np.load('x.npy')})[0])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert np.allclose(np.load(tmp_path / "y.npy"), Counting()(X[0]), atol=1e-5)


def test_errors_of_openvino_say_what_is_wrong_and_not_where_its_source_is(tmp_path: Path) -> None:
    needing("openvino")

    class Fixed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(2, 5) * 2

    onnxpatch.export(Fixed().eval(), (X,), tmp_path / "m.onnx", dynamo=False, check=False, dynamic_shapes=FREE)
    with pytest.raises(onnxpatch.RunError) as caught:
        Graph(tmp_path / "m.onnx", "openvino").run({"x": torch.randn(3, 5)})
    assert "Reshape" in str(caught.value) and ".cpp" not in str(caught.value), str(caught.value)


def test_arrays_cross_to_another_process_as_they_are() -> None:
    entries = [("a/b", np.array(3)), ("", np.zeros((0, 2), np.float16)), ("a/b", np.array([True]))]
    again = openvino_child.unpacked(openvino_child.packed(entries))
    assert [(name, array.dtype, array.tolist()) for name, array in again] == [
        (name, array.dtype, array.tolist()) for name, array in entries
    ]
    assert openvino_child.unpacked(openvino_child.packed([])) == []


def test_each_runtime_says_what_pip_installs() -> None:
    found, failures = runtime.runtimes()
    assert not failures and set(found) >= {"onnxruntime", "openvino", "reference", "tensorrt"}
    assert all(isinstance(one, Runtime) and one.distribution and one.name == name for name, one in found.items())
