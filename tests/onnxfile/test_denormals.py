"""`Session` counts denormals as zero while it runs a graph, and at no other time.

In a process of its own: onnxruntime's option depends on which session was the first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

pytestmark = pytest.mark.exports

CHILD = """
import sys, numpy, onnxruntime, onnxpatch
x, y = numpy.full(64, 1e-30, "float32"), numpy.full(64, 1e-9, "float32")
def eager():
    return float((x * y)[0]) != 0
if "after" in sys.argv:
    plain = onnxruntime.InferenceSession(sys.argv[1])
    assert plain.run(None, {"x": x, "y": y})[0][0] != 0
session = onnxpatch.Session(sys.argv[1])
assert eager(), "opening a session changed the thread"
assert session(x, y)[0] == 0 and session.bind(x, y)()[0] == 0
assert eager(), "a run changed the thread"
assert onnxpatch.Session(sys.argv[1], flush_denormals=False)(x, y)[0] != 0
try:
    session(x, y[:3])
except (onnxpatch.RunError, onnxpatch.InputError):
    assert eager(), "a run that failed changed the thread"
else:
    raise AssertionError("64 times 3 numbers ran")
"""


@pytest.mark.parametrize("order", ["first", "after"])
def test_denormals_are_zero_while_a_graph_runs_and_at_no_other_time(order, tmp_path: Path):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [f"{name}_n"]) for name in "xyz"]
    graph = helper.make_graph([helper.make_node("Mul", ["x", "y"], ["z"])], "g", values[:2], values[2:])
    file = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), file)
    done = subprocess.run([sys.executable, "-c", CHILD, str(file), order], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
