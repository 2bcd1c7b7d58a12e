"""The dynamo exporter: torch.onnx.export(dynamo=True) from a request; and the capture of a model's guards."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
import torch
from onnxscript import ir
from torch.export import Dim

from onnxpatch._torch.exporters import exact_constants, kept_translations, parts_in_modes, without_tracing
from onnxpatch._torch.guards import conditions_solved
from onnxpatch._torch.one_export import one_export, quiet_torch
from onnxpatch._torch.operator_tables import few_decompositions
from onnxpatch.exporters.dynamo_passes import TRANSLATIONS, write_as_loops
from onnxpatch.exporters.opened_call import opened_call, same_sizes
from onnxpatch.exporters.request import ExportRequest, OpsetNotWritten
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.axis_specs import has_operator
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.onnxfile import output_structure
from onnxpatch.onnxfile.mapped_weights import LARGE, MOST_IN_ONE_FILE, take_in

# The highest opset that onnxscript's converter writes; it leaves a graph at 18 where a later one is asked for.
_CONVERTED = 25
_FLOATS = {
    torch.float16: ir.DataType.FLOAT16,
    torch.bfloat16: ir.DataType.BFLOAT16,
    torch.float32: ir.DataType.FLOAT,
    torch.float64: ir.DataType.DOUBLE,
}


def torch_shapes(inputs: Inputs, specs: Sequence[shapes.LeafSpec]) -> dict[str, Any] | None:
    """`dynamic_shapes` for torch.export, which takes no strings. The names are written into the graph afterwards."""
    hinted = [{axis: Dim.DYNAMIC if isinstance(s, str) else s for axis, s in spec.items()} for spec in specs]
    written = shapes.to_shapes(inputs, hinted)
    if written is not None and inputs.keywords:  # by the argument names of `opened_call`
        below = written.pop(inputs.keywords)
        assert isinstance(below, dict)  # in the structure of the argument
        written |= below
    return written


def export_dynamo(request: ExportRequest, path: Path) -> object:
    """Write the file at `path`; returns the ONNXProgram."""
    asked = request.options
    # The file is written by `save` below, which takes what concerns the file.
    saving = {k: asked[k] for k in ("keep_initializers_as_inputs",) if k in asked}
    options = {k: v for k, v in asked.items() if k not in ("export_params", "keep_initializers_as_inputs")}
    # The user's own translations go before these.
    translations = {**TRANSLATIONS, **(options.get("custom_translation_table") or {})}
    with (
        without_tracing(),
        exact_constants(),
        kept_translations(),
        few_decompositions(),
        conditions_solved(),
        opened_call(request.model, request.inputs, request.layout) as call,
        same_sizes(request.model, call, request.inputs, request.specs),
    ):
        program: Any = torch.onnx.export(
            request.model,
            # torch takes a dict at the end for keywords.
            (*call.args, {}) if call.args and isinstance(call.args[-1], dict) and not call.kwargs else call.args,
            None,
            kwargs=call.kwargs or None,
            dynamo=True,
            dynamic_shapes=torch_shapes(request.inputs, request.specs),
            input_names=request.dynamo_names(),
            output_names=request.output_names,
            opset_version=min(request.opset, _CONVERTED),
            **{"verbose": False, **options, "custom_translation_table": translations},
        )
    _declare_later_opset(request, program)
    _refuse_another_opset(request, program)
    if any(node.op_type == "Scan" for node in _nodes(program.model)):
        write_as_loops(program.model)
    _cast_outputs(program)
    _name_sizes(request, program)
    _name_outputs(program, request)
    params = asked.get("export_params", True)
    # torch makes two copies of the weights to put them into the file.
    apart = params and not saving and not request.external_data and LARGE <= _weight(program) < MOST_IN_ONE_FILE
    program.save(str(path), include_initializers=params, external_data=request.external_data or apart, **saving)
    if apart:
        take_in(path, f"{path.name}.data")
    return program


def _weight(program: Any) -> int:
    """Bytes of the initializers."""
    tensors = (value.const_value for value in program.model.graph.initializers.values())
    return sum(int(tensor.nbytes) for tensor in tensors if tensor is not None)


# In torch up to 2.8 torch.export.export has no such argument, and torch's ONNX exporter does without it.
_ASSERTED: dict[str, Any] = {
    name: True
    for name in inspect.signature(torch.export.export).parameters
    if name == "prefer_deferred_runtime_asserts_over_guards"
}


def capture(model: Any, inputs: Inputs, specs: Sequence[shapes.LeafSpec]) -> Any:
    """An ExportedProgram like the ONNX exporter's, with runtime asserts, for its guards.

    Raises what torch.export raises. The caller must restore state that the forward changed.
    """
    opened = opened_call(model, inputs)
    with (
        one_export(), torch.no_grad(), quiet_torch(), parts_in_modes(model), conditions_solved(), opened as call,
        same_sizes(model, call, inputs, specs),
    ):  # fmt: skip
        return torch.export.export(
            model, call.args, kwargs=call.kwargs, dynamic_shapes=torch_shapes(inputs, specs), strict=False, **_ASSERTED
        )


def _declare_later_opset(request: ExportRequest, program: Any) -> None:
    """Declare the requested opset, if it changed no operator of the graph. Then the graph is valid in both."""
    made = program.model.opset_imports.get("", request.opset)
    # A graph that the converter left behind is refused by the next step.
    if made != min(request.opset, _CONVERTED) or made == request.opset:
        return
    if all(_same_since(node.op_type, made, request.opset) for node in _nodes(program.model) if node.domain == ""):
        program.model.opset_imports[""] = request.opset


def _nodes(model: Any) -> Iterator[Any]:
    # With those inside If, Loop and Scan. onnxscript 0.2 has no `Graph.all_nodes`.
    yield from ir.traversal.RecursiveGraphIterator(model.graph)
    for function in model.functions.values():
        yield from ir.traversal.RecursiveGraphIterator(function)


def _same_since(op: str, before: int, after: int) -> bool:
    schemas = (onnx.defs.get_schema(op, opset) for opset in (before, after))
    return len({schema.since_version for schema in schemas}) == 1


def _refuse_another_opset(request: ExportRequest, program: Any) -> None:
    """Raises OpsetNotWritten if the exporter could not convert the graph: it only logs that, and keeps the opset."""
    made = program.model.opset_imports.get("", request.opset)
    if made != request.opset:
        raise OpsetNotWritten(
            f"the dynamo exporter cannot write {type(request.model).__name__} in opset {request.opset}, and "
            f"writes {made}: pass opset_version={made}, or exporter='trace' for older ones"
        )


def _cast_outputs(program: Any) -> None:
    """Cast each float output of an ONNXProgram that has another width than in the program it was made of.

    x.sum(-1) of float16: torch adds up in float32, and leaves out the way back for an output.
    """
    captured = getattr(program, "exported_program", None)
    if captured is None:
        return
    graph, wanted = program.model.graph, _user_outputs(captured)
    if len(wanted) != len(graph.outputs):
        return
    for number, (value, dtype) in enumerate(zip(list(graph.outputs), wanted, strict=True)):
        asked = _FLOATS.get(dtype) if dtype is not None else None
        if asked is None or value.dtype == asked or value.dtype not in _FLOATS.values():
            continue
        cast = ir.node("Cast", [value], {"to": int(asked)})
        made = cast.outputs[0]
        made.type, made.shape, made.name = ir.TensorType(asked), value.shape, f"{value.name}_cast"
        graph.append(cast)
        graph.outputs[number] = made


def _user_outputs(captured: Any) -> list[torch.dtype | None]:
    """The dtypes of what the model returns; None for what is no tensor."""
    specs = captured.graph_signature.output_specs
    (returned,) = next(node for node in captured.graph.nodes if node.op == "output").args
    pairs = zip(specs, returned, strict=False)
    values = [getattr(one, "meta", {}).get("val") for spec, one in pairs if spec.kind.name == "USER_OUTPUT"]
    return [value.dtype if isinstance(value, torch.Tensor) else None for value in values]


def _name_sizes(request: ExportRequest, program: Any) -> None:
    """Give the dynamic sizes the user's names, if torch has a public API for it (2.9 and later)."""
    leaves = request.inputs.graph_leaves("dynamo")
    inputs = program.model.graph.inputs
    if not hasattr(program, "rename_axes") or len(leaves) != len(inputs):
        return
    names: dict[str, str] = {}
    sums: dict[str, str] = {}
    for leaf, value in zip(leaves, inputs, strict=True):
        for axis, spec in request.specs[leaf.index].items():
            size = value.shape[axis]
            if isinstance(spec, str) and not isinstance(size, int) and size.value is not None:
                # The first axis names a symbol: others with it are equal.
                (sums if has_operator(spec) else names).setdefault(str(size.value), spec)
    _name_sums(program, {symbol: text for symbol, text in sums.items() if symbol not in names})
    program.rename_axes(names)  # two symbols with one name: the user declares these axes equal


def _name_outputs(program: Any, request: ExportRequest) -> None:
    """Name the outputs after the model's own structure, and write that into the metadata.

    Where the model returns one of its inputs as it is, torch gives both values one name, and no runtime loads the file:
    such an output gets another.
    """
    graph, layout = program.model.graph, request.layout
    _keep_input_names(program, request.dynamo_names())
    outer = {value.name for value in (*graph.inputs, *graph.initializers.values())}
    if layout is not None and len(graph.outputs) == len(layout.places):
        _tell_apart(graph)
        tree, names = layout.named(request.output_names or (), sorted(outer))
        _free_names(program, set(names))
        for value, name in zip(graph.outputs, names, strict=True):
            value.name = name
        program.model.metadata_props[output_structure.KEY] = json.dumps(tree)
    outputs = graph.outputs
    inner = (value for node in _nodes(program.model) for value in node.outputs if not value.is_graph_output())
    taken = outer | {value.name for value in inner}
    for value in outputs:
        if value.name in taken and not value.is_graph_input():
            value.name = f"{value.name}_output"


def _keep_input_names(program: Any, given: Sequence[str] | None) -> None:
    """Give inputs their own names again, where the model returns one unchanged or begins with a view of its own shape.

    The exporter calls the first `x_orig`, and its output x. Of `x.t()` of one axis, or `x.expand(x.shape)`, the input
    becomes t or expand, and a caller who feeds x is refused.
    """
    graph, signature = program.model.graph, program.exported_program.graph_signature
    names = given or [
        one.arg.name for one in signature.input_specs if one.kind.name == "USER_INPUT" and hasattr(one.arg, "name")
    ]
    if len(names) != len(graph.inputs):
        return
    for value, own in zip(graph.inputs, names, strict=True):
        if value.name == own:
            continue
        for node in _nodes(program.model):
            for other in (one for one in node.outputs if one.name == own):
                other.name = f"{own}_output" if other.is_graph_output() else f"{own}_inside"
        value.name = own


def _tell_apart(graph: Any) -> None:
    """Give each output a value of its own: a model may return one tensor twice, or an input or parameter as it is."""
    seen: set[int] = set()
    for number, value in enumerate(graph.outputs):
        if id(value) in seen or value.is_graph_input() or value.is_initializer():
            # Two outputs of one value would have one name; one of an input or a weight, that name.
            copied = ir.node("Identity", [value])
            copied.outputs[0].type, copied.outputs[0].shape = value.type, value.shape
            graph.append(copied)
            graph.outputs[number] = copied.outputs[0]
        seen.add(id(value))


def _free_names(program: Any, wanted: set[str]) -> None:
    """Give another name to values inside the graph that have one of these."""
    inner = [value for node in _nodes(program.model) for value in node.outputs if not value.is_graph_output()]
    taken = wanted | {value.name for value in inner}
    for value in inner:
        if value.name in wanted:
            value.name = output_structure.unused(f"{value.name}_inside", taken)
            taken.add(value.name)


def _name_sums(program: Any, texts: dict[str, str]) -> None:
    """Name sizes that are exactly `past+n`. Inside larger expressions the text would be wrong: 2*past+n."""
    for value in (*program.model.graph.inputs, *program.model.graph.outputs):
        for axis, size in enumerate(value.shape or ()):
            if not isinstance(size, int) and str(size.value) in texts:
                value.shape[axis] = texts[str(size.value)]
