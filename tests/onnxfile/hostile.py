"""Files made by somebody else: a small graph with any metadata, and graphs that do not end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

OUTPUTS = "onnxpatch.outputs"


def with_metadata(metadata: Mapping[str, str], inputs: str = "x", output: str = "y") -> onnx.ModelProto:
    """`y = relu(x)`, beside a flag `there` that is True, with this metadata."""
    nodes = [
        helper.make_node("Relu", [inputs], [output], name="relu"),
        helper.make_node("Constant", [], ["there"], value=helper.make_tensor("there", TensorProto.BOOL, [], [True])),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "graph", [value(inputs, TensorProto.FLOAT, ["n", 2])],
        [value(output, TensorProto.FLOAT, ["n", 2]), value("there", TensorProto.BOOL, [])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, dict(metadata))
    return model


def structured(tree: Any) -> bytes:
    """The same, with this structure of outputs."""
    text = tree if isinstance(tree, str) else json.dumps(tree)
    return bytes(with_metadata({OUTPUTS: text}).SerializeToString())


TENSOR = {"kind": "tensor", "name": "y"}
STAMP = {
    "onnxpatch.version": "0.1.0",
    "onnxpatch.exporter": "dynamo",
    "onnxpatch.plan": json.dumps([{"path": "0", "class": "Rearrange", "patch": "einops-rearrange"}]),
    "onnxpatch.digest": "sha256:0123456789abcdef",
    "onnxpatch.versions": json.dumps({"torch": "2.13.0"}),
}


def endless(file: Path) -> Path:
    """A Loop without a trip count whose condition stays True, in a file that takes x and gives y."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["carried", "carried"], ["next"])],
        "body",
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []),
         value("carried", TensorProto.FLOAT, None)],
        [value("on", TensorProto.BOOL, []), value("next", TensorProto.FLOAT, None)],
    )  # fmt: skip
    true = helper.make_tensor("true", TensorProto.BOOL, [], [True])
    graph = helper.make_graph(
        [helper.make_node("Loop", ["", "true", "x"], ["y"], body=body, name="never")], "graph",
        [value("x", TensorProto.FLOAT, ["n"])], [value("y", TensorProto.FLOAT, ["n"])], [true],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(file))
    return file


def exploding(file: Path, depth: int = 40) -> Path:
    """Functions that each call the next one twice: 2^depth nodes when they are written out."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("me", 1)]

    def twice(i: int) -> onnx.FunctionProto:
        called = {"op_type": f"F{i + 1}", "domain": "me"} if i < depth else {"op_type": "Relu"}
        nodes = [helper.make_node(inputs=[a], outputs=[b], **called) for a, b in (("a", "b"), ("b", "c"))]
        return helper.make_function("me", f"F{i}", ["a"], ["c"], nodes, opsets)

    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("F0", ["x"], ["y"], domain="me")], "graph",
        [value("x", TensorProto.FLOAT, ["n"])], [value("y", TensorProto.FLOAT, ["n"])],
    )  # fmt: skip
    functions = [twice(i) for i in range(depth + 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=9), str(file))
    return file
