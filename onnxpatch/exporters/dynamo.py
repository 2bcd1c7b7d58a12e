"""The dynamo exporter: torch.onnx.export(dynamo=True) from a request, and what torch.export is asked about sizes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim

from onnxpatch.errors import InputError
from onnxpatch.exporters.request import ExportRequest
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.leaves import Inputs


class OpsetNotWritten(InputError):
    """The dynamo exporter cannot write the model in the opset that was asked for; another exporter may."""


def torch_shapes(inputs: Inputs, specs: Sequence[shapes.LeafSpec]) -> dict[str, Any] | None:
    """`dynamic_shapes` for torch.export, which knows no names as strings; the graph is given them afterwards."""
    hinted = [{axis: Dim.DYNAMIC if isinstance(s, str) else s for axis, s in spec.items()} for spec in specs]
    return shapes.to_shapes(inputs, hinted)


def export_dynamo(request: ExportRequest, path: Path) -> Any:
    """Write the file at `path`; returns the ONNXProgram."""
    args, kwargs = request.inputs.rebuild(request.inputs.values())
    asked = request.options
    saving = {k: asked[k] for k in ("keep_initializers_as_inputs",) if k in asked}
    options = {k: v for k, v in asked.items() if k not in ("export_params", "keep_initializers_as_inputs")}
    program: Any = torch.onnx.export(
        request.model,
        args,
        None,
        kwargs=kwargs or None,
        dynamo=True,
        dynamic_shapes=torch_shapes(request.inputs, request.specs),
        input_names=request.input_names,
        output_names=request.output_names,
        opset_version=request.opset,
        **{"verbose": False, **options},
    )
    _refuse_another_opset(request, program)
    _name_sizes(request, program)
    params = asked.get("export_params", True)
    program.save(str(path), include_initializers=params, external_data=request.external_data, **saving)
    return program


def capture(model: Any, inputs: Inputs, specs: Sequence[shapes.LeafSpec]) -> Any:
    """An ExportedProgram as the ONNX exporter makes it, with its runtime asserts kept, for what it says of sizes.

    Raises what torch.export raises. The caller restores the state that the forward may have changed.
    """
    args, kwargs = inputs.rebuild(inputs.values())
    with torch.no_grad():
        return torch.export.export(
            model,
            args,
            kwargs=kwargs,
            dynamic_shapes=torch_shapes(inputs, specs),
            strict=False,
            prefer_deferred_runtime_asserts_over_guards=True,
        )


def _refuse_another_opset(request: ExportRequest, program: Any) -> None:
    """The dynamo exporter leaves a graph that it cannot convert at the opset that it was made for, and says so in a
    log alone."""
    made = program.model.opset_imports.get("", request.opset)
    if made != request.opset:
        raise OpsetNotWritten(
            f"the dynamo exporter cannot write {type(request.model).__name__} in opset {request.opset}: what it writes "
            f"has opset {made}. Ask for opset {made}, or for the trace exporter (dynamo=False)"
        )


def _name_sizes(request: ExportRequest, program: Any) -> None:
    """Give the file's free sizes the user's names, where torch has a public way to (2.9 or so and later)."""
    leaves = request.inputs.graph_leaves("dynamo")
    inputs = program.model.graph.inputs
    if not hasattr(program, "rename_axes") or len(leaves) != len(inputs):
        return
    names: dict[str, str] = {}
    for leaf, value in zip(leaves, inputs, strict=True):
        for axis, spec in request.specs[leaf.index].items():
            size = value.shape[axis]
            if isinstance(spec, str) and not isinstance(size, int) and size.value is not None:
                names.setdefault(str(size.value), spec)
    if len(set(names.values())) == len(names):
        program.rename_axes(names)
