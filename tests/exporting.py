"""Exporting a model through one exporter and running the file, for tests: nothing of the kit is used here."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import torch
from torch.utils import _pytree as pytree


def export(model: torch.nn.Module, args: tuple, exporter: str, dynamic_shapes: Any = None, opset: int = 18) -> bytes:
    """The ONNX file of `model`, made by plain torch.onnx.export; inputs are named in0, in1, ..."""
    with tempfile.TemporaryDirectory() as folder:  # torch 2.6 takes no file object with dynamo
        file = Path(folder) / "m.onnx"
        _export(model, args, str(file), exporter, dynamic_shapes, opset)
        return file.read_bytes()


def _export(model: torch.nn.Module, args: tuple, file: str, exporter: str, dynamic_shapes: Any, opset: int) -> None:
    tensors = _tensors(args)
    names = [f"in{index}" for index in range(len(tensors))]
    args = copy.deepcopy(args)
    with torch.no_grad():
        if exporter == "dynamo":
            torch.onnx.export(
                model, args, file, dynamo=True, dynamic_shapes=dynamic_shapes, input_names=names,
                opset_version=opset, verbose=False, external_data=False,
            )  # fmt: skip
        else:
            scripted = torch.jit.script(model) if exporter == "script" else model
            axes = _axes(names, args, dynamic_shapes)
            torch.onnx.export(
                scripted, args, file, dynamo=False, dynamic_axes=axes, input_names=names, opset_version=opset
            )


def run(file: bytes, args: tuple) -> list[torch.Tensor]:
    """What onnxruntime makes of the file, on one thread."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    inputs = {node.name for node in session.get_inputs()}
    feed = {f"in{index}": value.numpy() for index, value in enumerate(_tensors(args)) if f"in{index}" in inputs}
    return [torch.as_tensor(value) for value in session.run(None, feed) if value is not None]


def nodes(file: bytes) -> int:
    """Nodes of the graph and its subgraphs, constants not counted."""
    proto = onnx.load_from_string(file)

    def count(graph: Any) -> int:
        inner = sum(
            count(attribute.g) for node in graph.node for attribute in node.attribute if attribute.HasField("g")
        )
        return inner + sum(node.op_type != "Constant" for node in graph.node)

    return count(proto.graph) + sum(count(function) for function in proto.functions)


def wrong(got: list[torch.Tensor], want: Any, tolerance: float) -> str | None:
    """What differs first, or None: shapes, values against the largest magnitude; whole numbers exactly."""
    wanted = _tensors(want)
    if len(got) != len(wanted):
        return f"{len(got)} outputs, eager has {len(wanted)}"
    for index, (mine, eager) in enumerate(zip(got, wanted, strict=True)):
        if mine.shape != eager.shape:
            return f"output {index}: shape {tuple(mine.shape)}, eager {tuple(eager.shape)}"
        if not eager.is_floating_point() and not eager.is_complex():
            if not torch.equal(mine.to(eager.dtype), eager):
                return f"output {index}: values differ"
        elif eager.numel():
            error = (mine.double() - eager.double()).abs().max() / eager.double().abs().max().clamp(min=1e-6)
            if not error <= tolerance:
                return f"output {index}: relative error {error:.3g}"
    return None


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _axes(names: list[str], args: tuple, dynamic_shapes: Any) -> dict[str, dict[int, str]] | None:
    if dynamic_shapes is None:
        return None
    shapes = list(dynamic_shapes.values()) if isinstance(dynamic_shapes, dict) else list(dynamic_shapes)
    flat: list[Any] = []
    for arg, shape in zip(args, shapes, strict=False):
        if isinstance(arg, torch.Tensor):
            flat.append(shape)
        elif isinstance(arg, list | tuple):
            flat.extend(shape)
    named = zip(names, flat, strict=False)
    return {name: {dim: str(getattr(axis, "__name__", axis)) for dim, axis in s.items()} for name, s in named if s}


def while_traced(call):
    """What `call()` returns while torch.jit.trace runs it, as the TorchScript exporter runs a model."""
    found = []

    def run(x):
        found.append(call())
        return x + 0

    torch.jit.trace(run, torch.ones(1), check_trace=False)
    return found[0]
