"""Two classics of one convolution: applied in a Python loop, and exported with three sets of dynamic sizes."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
from torch import nn

import onnxpatch
from onnxpatch.errors import RunError
from onnxpatch.onnxfile.runtime import Graph
from tests import exporting

pytestmark = pytest.mark.exports

IMAGE = ({0: "b", 2: "h", 3: "w"},)


class Looped(nn.Module):
    """The same convolution as often as the second argument says."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: torch.Tensor, times: int):
        for _ in range(times):
            x = self.conv(x)
        return x


class Fixed(Looped):
    """As often as it was built for."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def forward(self, x: torch.Tensor):
        for _ in range(self.times):
            x = self.conv(x)
        return x


def operators(graph: onnx.GraphProto) -> list[str]:
    return [node.op_type for node in graph.node if node.op_type not in ("Constant", "Identity")]


@pytest.mark.parametrize("exporter", ["trace", "script", "dynamo"])
@pytest.mark.parametrize("times", [2, 3])
def test_a_loop_of_fixed_length_is_unrolled(times, exporter):
    model = Fixed(times).eval()
    xs = [torch.randn(2, 3, 8, 8), torch.randn(1, 3, 8, 8)]
    with onnxpatch.patched(model, exporter=exporter):
        file = exporting.export(model, (xs[0],), exporter, ({0: "batch"},))
    assert operators(onnx.load_from_string(file).graph) == ["Conv"] * times
    for x in xs:
        assert exporting.wrong(exporting.run(file, (x,)), model(x), 1e-5) is None


@pytest.mark.parametrize("exporter", ["trace", "script", "dynamo"])
@pytest.mark.parametrize("times", [2, 3])
def test_a_loop_counted_by_an_argument_is_one_only_in_script(times, exporter, tmp_path):
    """trace and dynamo write the example's count down and drop the input; script makes one graph for every count."""
    model, x, path = Looped().eval(), torch.randn(2, 3, 8, 8), str(tmp_path / "m.onnx")
    names = ["x", "times"]
    with onnxpatch.patched(model, exporter=exporter), torch.no_grad():
        if exporter == "dynamo":
            torch.onnx.export(model, (x, times), path, dynamo=True, input_names=names, verbose=False)
        else:
            made = torch.jit.script(model) if exporter == "script" else model
            torch.onnx.export(made, (x, times), path, dynamo=False, input_names=names, opset_version=18)
    graph = onnx.load(path).graph
    scripted = exporter == "script"
    assert [value.name for value in graph.input] == (names if scripted else names[:1])
    assert operators(graph) == (["Loop"] if scripted else ["Conv"] * times)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for count in (0, 1, 2, 3, 5) if scripted else (times,):
        feeds = {"x": x.numpy(), "times": np.array(count)} if scripted else {"x": x.numpy()}
        got = [torch.as_tensor(session.run(None, feeds)[0])]
        assert exporting.wrong(got, model(x, count), 1e-5) is None, count


SIZES = {"example": (2, 3, 8, 8), "batch": (5, 3, 8, 8), "image": (2, 3, 12, 10)}
DYNAMIC = {"static": None, "batch": ({0: "batch"},), "image": ({2: "height", 3: "width"},)}
OUTCOMES = {
    ("static", "example"): "right",
    ("static", "batch"): "refused",
    ("static", "image"): "refused",
    ("batch", "example"): "right",
    ("batch", "batch"): "right",
    ("batch", "image"): "refused",
    ("image", "example"): "right",
    ("image", "batch"): "refused",
    ("image", "image"): "right",
}


def outcome(file: bytes, x: torch.Tensor, want: torch.Tensor) -> str:
    try:
        return exporting.wrong(exporting.run(file, (x,)), want, 1e-5) or "right"
    except InvalidArgument as error:
        assert "invalid dimensions for input" in str(error)
        return "refused"


@pytest.mark.parametrize("exporter", ["trace", "script", "dynamo"])
def test_three_exports_of_a_convolution_on_three_inputs_have_nine_outcomes(exporter):
    """Right wherever the size was declared dynamic; the other four are refused by onnxruntime."""
    model = nn.Conv2d(3, 4, 3, padding=1).eval()
    inputs = {name: torch.randn(size) for name, size in SIZES.items()}
    outcomes = {}
    for dynamic, axes in DYNAMIC.items():
        with onnxpatch.patched(model, exporter=exporter):
            file = exporting.export(model, (inputs["example"],), exporter, axes)
        outcomes |= {(dynamic, name): outcome(file, x, model(x)) for name, x in inputs.items()}
    assert outcomes == OUTCOMES


# ---- the same by `export`


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("how", ["dynamo", "trace", "script"])
def test_convolution_in_a_loop(how: str, n: int, tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    options = {"dynamo": how == "dynamo", "script": how == "script"}
    onnxpatch.export(Fixed(n).eval(), (torch.randn(2, 3, 24, 40),), file, dynamic_shapes=IMAGE, max_probes=5, **options)
    graph = onnx.load(file).graph
    nodes = [node.op_type for node in graph.node if node.op_type != "Constant"]
    if how == "script":  # the loop stays a loop: one convolution in its body, n as the trip count
        assert nodes == ["Loop"] or nodes.count("Conv") == n
    else:  # unrolled: n convolutions that share one weight
        assert nodes == ["Conv"] * n
        assert len({node.input[1] for node in graph.node if node.op_type == "Conv"}) == 1


def test_nine_outcomes_of_one_convolution_exported_three_times(tmp_path: Path) -> None:
    """Static, free batch, free batch and image, each run on three inputs: five right, four refused by onnxruntime."""
    pytest.importorskip("onnxruntime")
    model = nn.Conv2d(3, 4, 3).eval()
    example, more, larger = torch.randn(1, 3, 16, 16), torch.randn(4, 3, 16, 16), torch.randn(2, 3, 20, 24)
    outcomes = {}
    for name, shapes in (("static", None), ("batch", ({0: "b"},)), ("image", IMAGE)):
        file = tmp_path / f"{name}.onnx"
        onnxpatch.export(copy.deepcopy(model), (example,), file, dynamic_shapes=shapes, max_probes=4)
        graph = Graph(file)
        for label, x in (("example", example), ("more", more), ("larger", larger)):
            outcomes[name, label] = _outcome(graph, model, x)
    assert outcomes == {
        ("static", "example"): "right",
        ("static", "more"): "refused",
        ("static", "larger"): "refused",
        ("batch", "example"): "right",
        ("batch", "more"): "right",
        ("batch", "larger"): "refused",
        ("image", "example"): "right",
        ("image", "more"): "right",
        ("image", "larger"): "right",
    }


def _outcome(graph: Graph, model: nn.Module, x: torch.Tensor) -> str:
    try:
        (found,) = graph.run({graph.inputs[0].name: x})
    except RunError:
        return "refused"
    with torch.no_grad():
        return "right" if torch.allclose(torch.from_numpy(found), model(x), atol=1e-5) else "wrong"
