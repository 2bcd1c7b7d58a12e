"""The TorchScript exporter, by trace or by script: torch.onnx.export(dynamo=False) from a request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from onnxpatch._torch.script_tracing import traced
from onnxpatch.exporters.opened_call import opened_call
from onnxpatch.exporters.request import ExportRequest
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.patching.script_defaults import positional


def export_torchscript(request: ExportRequest, path: Path) -> None:
    """Write the file at `path`."""
    model = request.model
    with (
        opened_call(model, request.inputs) as call,
        positional(model, call.args, call.kwargs) as (target, all_args, rest),
        traced(),
    ):
        if all_args and isinstance(all_args[-1], dict):
            all_args = (*all_args, {})  # a dict at the end would be taken for keywords
        call_torchscript(request, target, all_args, rest, path)
    call.name_outputs(path, request.output_names)


def call_torchscript(
    request: ExportRequest, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], path: Path
) -> None:
    """The bare call of torch.onnx.export for `target`, compiled first where the request says script."""
    if request.exporter == "script" and not isinstance(target, torch.jit.ScriptModule):
        target = torch.jit.script(target)
    leaves, names = request.inputs.graph_leaves("trace"), request.trace_names()
    torch.onnx.export(
        target,
        args,
        str(path),
        kwargs=kwargs or None,
        dynamo=False,
        dynamic_axes=shapes.to_axes(request.specs, leaves, names[: len(leaves)]) or None,
        input_names=names,
        output_names=request.output_names,
        opset_version=request.opset,
        **request.options,
    )
