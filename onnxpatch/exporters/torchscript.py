"""The TorchScript exporter, by trace or by script: torch.onnx.export(dynamo=False) from a request."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from onnxpatch._torch.script_tracing import traced
from onnxpatch._torch.trace_state import tracing_paused
from onnxpatch._torch.traced_weights import weights_left_out
from onnxpatch.exporters.opened_call import opened_call
from onnxpatch.exporters.output_layout import OutputLayout
from onnxpatch.exporters.request import ExportRequest
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.onnxfile import output_structure
from onnxpatch.onnxfile.added_weights import add_weights, cast_float_outputs, name_output_sizes
from onnxpatch.onnxfile.mapped_weights import LARGE, SMALL
from onnxpatch.onnxfile.unread import edited
from onnxpatch.patching.model_state import TensorContents
from onnxpatch.patching.script_defaults import positional
from onnxpatch.process import undone


def export_torchscript(request: ExportRequest, path: Path) -> None:
    """Write the file at `path`."""
    model = request.model
    with (
        opened_call(model, request.inputs, request.layout) as call,
        # After `opened_call`: its forward is the one whose defaults count.
        positional(model, call.args, call.kwargs) as (target, all_args, rest),
        traced(),
    ):
        if all_args and isinstance(all_args[-1], dict):
            all_args = (*all_args, {})  # torch takes a dict at the end for keywords
        call_torchscript(request, target, all_args, rest, path)
    if request.layout is not None:
        _name_outputs(request.layout, path, request.output_names or ())


def _name_outputs(layout: OutputLayout, path: Path, given: Sequence[str]) -> None:
    """Name the outputs of the file after the model's own structure, and write that into the file."""
    with edited(path) as proto:
        if len(proto.graph.output) == len(layout.places):  # else the comparison says what is wrong
            output_structure.write(proto, copy.deepcopy(layout.tree), given)
            cast_float_outputs(proto.graph, layout.dtypes)
        name_output_sizes(proto.graph)


def call_torchscript(
    request: ExportRequest, target: Any, args: tuple[object, ...], kwargs: dict[str, object], path: Path
) -> None:
    """Call torch.onnx.export for `target`, compiled by torch.jit.script first if the request says so."""
    if request.exporter == "script" and not isinstance(target, torch.jit.ScriptModule):
        target = torch.jit.script(target)
    # A captured program refuses to be set to eval, as torch does for the time of the trace.
    mode: dict[str, Any] = {}
    if isinstance(target, torch.fx.GraphModule):
        target, mode = _Program(target), {"training": torch.onnx.TrainingMode.PRESERVE}
    # input_names may go on with names for the parameters, which are no dynamic inputs.
    leaves, names = request.inputs.graph_leaves("trace"), request.trace_names()
    with weights_left_out(_least(request), SMALL) as weights, _put_back(target):
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
            **{**mode, **request.options},
        )
    if weights:
        add_weights(path, weights, apart=request.external_data)


@contextlib.contextmanager
def _put_back(target: Any) -> Iterator[None]:
    """Inside the block, buffers that a call of the model writes (`self.count += 1`) are as before when it ends.

    torch reads what it puts into the file after the trace, and the graph writes once more.
    """
    if not isinstance(target, torch.nn.Module) or isinstance(target, torch.jit.ScriptModule):
        yield
        return
    contents = TensorContents(target, ())

    def put_back(*call: object) -> None:
        with tracing_paused():
            contents.restore()

    with undone(target.register_forward_hook(put_back).remove):
        yield


class _Program(torch.nn.Module):
    """Around a captured program, whose `graph` torch would take for one of TorchScript."""

    def __init__(self, program: torch.fx.GraphModule) -> None:
        super().__init__()
        self.program = program

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.program(*args, **kwargs)


def _least(request: ExportRequest) -> float:
    """From how many bytes on, all large weights together, they are written by `add_weights`."""
    options = request.options
    # The caller wants a file without weights, or with each weight as an input, too: torch writes it.
    if not options.get("export_params", True) or options.get("keep_initializers_as_inputs"):
        return math.inf
    return 0 if request.external_data else LARGE
