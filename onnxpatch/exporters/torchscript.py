"""Calls the TorchScript exporter, torch.onnx.export(dynamo=False), for `exporter="trace"` and `"script"`.

The exporter fills in every default of forward's signature, and makes tensors of the values:

    def forward(self, x, flag=True, k=3)      export(model, (x,)) calls forward(x, tensor(True), tensor(3))

Then `if flag` and `k > 3` are traced as tensors, or fail. So `_positional` shows it a forward that takes the given
arguments only. The exporter passes arguments by position; keyword-only ones are passed on by keyword here. What the
file lacks is added at the end: large weights, casts to the dtypes of the model's outputs, names of sizes.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import onnx
import torch

from onnxpatch._torch.exporters import scripted_parts
from onnxpatch._torch.function_modes import tracing_paused
from onnxpatch._torch.script_tracing import numbers_negated, traced, weights_left_out
from onnxpatch.exporters.opened_call import OutputLayout, opened_call, show_signature
from onnxpatch.exporters.request import ExportRequest
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.leaves import signature
from onnxpatch.inputs.modules import is_program
from onnxpatch.onnxfile import output_structure
from onnxpatch.onnxfile.editing import edited
from onnxpatch.onnxfile.mapped_weights import LARGE, MOST_IN_ONE_FILE, SMALL, take_in
from onnxpatch.onnxfile.runtimes.interface import BFLOAT16
from onnxpatch.patching.forward_state import Bindings, restorer_of_tensors
from onnxpatch.patching.swap import UndoLog
from onnxpatch.process import undone

if TYPE_CHECKING:
    from onnx import GraphProto

# What torch calls a size that it cannot tell: operator, value, dimension (`LayerNormalizationonnx::Gather_165_dim_0`).
_OF_TORCH = re.compile(r"[A-Z][\w:.]*_dim_\d+")
# ONNX's numbers of the types.
_FLOATS = {torch.float32: 1, torch.float16: 10, torch.float64: 11, torch.bfloat16: BFLOAT16}
_PAGE = 1 << 12  # a runtime can map a tensor that starts a page


def export_torchscript(request: ExportRequest, path: Path) -> None:
    """Write the file at `path`."""
    model = request.model
    with (
        opened_call(model, request.inputs, request.layout) as call,
        # After `opened_call`: its forward is the one whose defaults count.
        _positional(model, call.args, call.kwargs) as (target, all_args, rest),
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
            output_structure.write_structure(proto, copy.deepcopy(layout.tree), given)
            cast_float_outputs(proto.graph, layout.dtypes)
        name_output_sizes(proto.graph)


def call_torchscript(
    request: ExportRequest, target: Any, args: tuple[object, ...], kwargs: dict[str, object], path: Path
) -> None:
    """Call torch.onnx.export for `target`, compiled by torch.jit.script first if the request says so."""
    if request.exporter == "script" and not isinstance(target, torch.jit.ScriptModule):
        target = torch.jit.script(target)
    elif scripted_parts(target):
        # The exporter's own trace knows no module but those of Python: torch.jit.trace takes both.
        target = torch.jit.trace(target, args, example_kwarg_inputs=None, check_trace=False, strict=False)
    # A captured program refuses to be set to eval, as torch does for the time of the trace.
    captured = any(map(is_program, target.modules()))
    mode: dict[str, Any] = {"training": torch.onnx.TrainingMode.PRESERVE} if captured else {}
    compiled = request.exporter == "script" or isinstance(target, torch.jit.ScriptModule)
    # input_names may go on with names for the parameters, which are no dynamic inputs.
    leaves, names = request.inputs.graph_leaves("trace"), request.trace_names()
    forms = numbers_negated() if compiled else contextlib.nullcontext()
    with weights_left_out(_least(request), SMALL) as weights, _put_back(target), forms:
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
    """Inside the block, buffers that a call of the model writes or assigns are as before when it ends.

    torch reads what it puts into the file after the trace, and the graph writes once more.
    """
    if not isinstance(target, torch.nn.Module) or isinstance(target, torch.jit.ScriptModule):
        yield
        return
    restore, bindings = restorer_of_tensors(target), Bindings(target)

    def put_back(*call: object) -> None:
        with tracing_paused():
            bindings.restore()
            restore()

    with undone(target.register_forward_hook(put_back).remove):
        yield


def _least(request: ExportRequest) -> float:
    """From how many bytes on, all large weights together, they are written by `add_weights`."""
    options = request.options
    # The caller wants a file without weights, or with each weight as an input, too: torch writes it.
    if not options.get("export_params", True) or options.get("keep_initializers_as_inputs"):
        return math.inf
    return 0 if request.external_data else LARGE


@contextlib.contextmanager
def _positional(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, object]
) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """(model, args, kwargs) for the exporter. Inside the block, forward takes the given arguments only."""
    if isinstance(model, torch.jit.ScriptModule) or not _called_otherwise(model, args, kwargs):
        yield model, args, kwargs
        return
    given = _ordered(model, kwargs)
    log = UndoLog()
    with undone(log.undo):
        log.specialise(model, _mixin(len(args), tuple(given)))
        yield model, (*args, *given.values()), {}


def _called_otherwise(model: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether the exporter would call forward in another way than with the given arguments.

    It gives every argument by position, and makes graph inputs of omitted defaults. It gives every None, too:
    transformers' decorators, which fill in `use_cache` by keyword, get one too many.
    """
    sig = signature(model)
    parameters = list(sig.parameters.values()) if sig else []
    kinds = {p.kind for p in parameters}
    if kwargs and not kinds.isdisjoint((inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)):
        return True
    decorated = any(hasattr(vars(cls).get("forward"), "__wrapped__") for cls in type(model).__mro__)
    filled_in = (bool, int, float, torch.Tensor, *((type(None),) if decorated else ()))
    omitted = (p for p in parameters[len(args) :] if p.name not in kwargs)
    return inspect.Parameter.VAR_POSITIONAL not in kinds and any(isinstance(p.default, filled_in) for p in omitted)


def _ordered(model: torch.nn.Module, kwargs: dict[str, object]) -> dict[str, object]:
    sig = signature(model)
    order = list(sig.parameters) if sig else []
    return dict(sorted(kwargs.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))


def _mixin(count: int, names: tuple[str, ...]) -> type:
    class Positional:
        def forward(self, *values: object) -> Any:
            return super().forward(*values[:count], **dict(zip(names, values[count:], strict=True)))  # type: ignore[misc]

    return Positional


def defaults_kept(model: torch.nn.Module) -> type | None:
    """A mixin for the root that keeps torch.onnx.export(dynamo=False) from making inputs of defaults; or None.

    The signature that the exporter reads has None in place of such a default: None becomes no input. The mixin's
    forward puts the number back. A parameter that may be None by its annotation is not changed.
    """
    sig = signature(model)
    parameters = list(sig.parameters.values()) if sig else []
    # Where None is a value that the caller may give, it could not be told from an omitted argument.
    numbers = {p.name: p.default for p in parameters if _is_number(p) and "None" not in _annotated(p)}
    if not numbers or any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return None
    names = [p.name for p in parameters]

    def given(name: str, value: object) -> object:
        return numbers.get(name) if value is None else value

    class Defaults:
        def forward(self, *values: object, **named: object) -> Any:
            first = list(map(given, names, values))
            rest = {name: given(name, value) for name, value in named.items()}
            return super().forward(*first, *values[len(names) :], **rest)  # type: ignore[misc]

    show_signature(Defaults.forward, [p.replace(default=None) if p.name in numbers else p for p in parameters])
    return Defaults


def _is_number(parameter: inspect.Parameter) -> bool:
    return isinstance(parameter.default, bool | int | float) and parameter.kind is not inspect.Parameter.KEYWORD_ONLY


def _annotated(parameter: inspect.Parameter) -> str:
    """The annotation as text; "None" if it allows None."""
    text = str(parameter.annotation)
    # `Optional[int]` as text has no None in it.
    return "None" if "Optional" in text else text


def add_weights(path: Path, weights: Mapping[str, torch.Tensor], apart: bool) -> None:
    """Make initializers of the inputs that have the names of `weights`.

    apart: their data stays in the file `<name>.data` beside the model; else in the model, if it has room.
    """
    data = path.with_name(f"{path.name}.data")
    with edited(path) as proto, open(data, "wb") as out:
        inputs = {value.name: value for value in proto.graph.input}
        for name, weight in weights.items():
            if name not in inputs:  # no node reads it
                continue
            one = proto.graph.initializer.add(name=name, dims=weight.shape)
            one.data_type = inputs[name].type.tensor_type.elem_type
            one.data_location = one.EXTERNAL
            offset = _write_bytes(weight, out)
            entries = {"location": data.name, "offset": str(offset), "length": str(weight.nbytes)}
            for key, value in entries.items():
                one.external_data.add(key=key, value=value)
            proto.graph.input.remove(inputs[name])
    if not apart and sum(weight.nbytes for weight in weights.values()) < MOST_IN_ONE_FILE:
        take_in(path, data.name)


def _write_bytes(weight: torch.Tensor, out: BinaryIO) -> int:
    """Write the bytes of a tensor; returns where they begin."""
    out.write(bytes(-out.tell() % _PAGE))
    offset = out.tell()
    out.write(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return offset


def cast_float_outputs(graph: GraphProto, dtypes: Sequence[torch.dtype]) -> None:
    """Cast each float output that has another width than in `dtypes`, which are eager's in the same order."""
    from onnx import helper

    fixed = {name for node in graph.node for name in output_structure.names_in_subgraphs(node)}
    fixed |= {value.name for value in (*graph.input, *graph.initializer)}
    for output, dtype in zip(graph.output, dtypes, strict=True):
        kind, wanted = output.type.tensor_type, _FLOATS.get(dtype)
        if wanted is None or kind.elem_type == wanted or kind.elem_type not in _FLOATS.values():
            continue
        if output.name in fixed:  # its name cannot go to another value
            continue
        name, computed = output.name, f"{output.name}_computed"
        output_structure.rename_outputs(graph, {name: computed})
        graph.node.append(helper.make_node("Cast", [computed], [name], to=wanted))
        output.name, kind.elem_type = name, wanted


def name_output_sizes(graph: onnx.GraphProto) -> None:
    """Rename the sizes of outputs that are called after an operator. Sizes of one name keep one name."""
    inputs = {size.dim_param for value in graph.input for size in _sizes(value)}
    names: dict[str, str] = {}
    for value in graph.output:
        for axis, size in enumerate(_sizes(value)):
            if size.dim_param not in inputs and _OF_TORCH.fullmatch(size.dim_param):
                names.setdefault(size.dim_param, f"{value.name}_dim_{axis}")
    for value in (*graph.output, *graph.value_info) if names else ():
        for size in _sizes(value):
            if size.dim_param in names:
                size.dim_param = names[size.dim_param]


def _sizes(value: onnx.ValueInfoProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    if value.type.HasField("tensor_type"):
        yield from value.type.tensor_type.shape.dim
