"""The call of torch.onnx.export itself, with either exporter, from one description."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import Dim

from onnxpatch._torch.exporters import no_graphs_printed
from onnxpatch._torch.script_tracing import traced
from onnxpatch.errors import InputError
from onnxpatch.exporters.artifact import OutFile
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.example import declared_example, has_example
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.patching.script_defaults import positional

_TORCH = frozenset(inspect.signature(torch.onnx.export).parameters)


@dataclass
class Call:
    """One export as asked for. specs: per leaf, axis -> what was declared; options: passed to torch as they are."""

    model: Any
    inputs: Inputs
    specs: list[shapes.LeafSpec]
    exporter: str
    opset: int
    input_names: Sequence[str] | None
    output_names: Sequence[str] | None
    external_data: bool
    options: dict[str, Any]

    def trace_names(self) -> list[str]:
        """A name for every graph input of the TorchScript exporter: the user's, then the arguments' own."""
        graph = self.inputs.graph_leaves("trace")
        given = list(self.input_names or ())
        taken = set(self.model.state_dict()) | set(given)
        own = [f"{leaf.name}_input" if leaf.name in taken else leaf.name for leaf in graph[len(given) :]]
        return given + own

    def names_for(self, graph: Graph) -> list[str] | None:
        """The names of the inputs in leaf order, to match the graph's own by; None for by position."""
        if self.exporter != "dynamo":
            return self.trace_names()
        have = [i.name for i in graph.inputs]
        return have if len(have) == len(self.inputs.graph_leaves("dynamo")) else None


def split_options(options: Mapping[str, Any], named: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(those of torch.onnx.export, those for the patches). A near miss of a known name is an error, not an option.

    named: the options that `export` itself has.
    """
    known = _TORCH | set(named)
    ours = {name: value for name, value in options.items() if name not in _TORCH}
    for name in ours:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
        if near:
            raise InputError(f"export has no option {name!r}: did you mean {near[0]!r}?")
    return {name: value for name, value in options.items() if name in _TORCH}, ours


def example_of(
    model: Any, args: Any, kwargs: Mapping[str, Any] | None, options: dict[str, Any]
) -> tuple[Any, Mapping[str, Any] | None, dict[str, Any]]:
    """The example that the model itself brings, where the caller gives none."""
    found = None if has_example(args, kwargs) else declared_example(model)
    return (found.args, found.kwargs, options) if found else (args, kwargs, options)


def run_exporter(call: Call, model: Any, out: OutFile) -> Any:
    """Write the file to `out.path`; returns the ONNXProgram with dynamo, None otherwise."""
    args, kwargs = call.inputs.rebuild(call.inputs.values())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        if call.exporter == "dynamo":
            return _dynamo(call, model, args, kwargs, out)
        _torchscript(call, model, args, kwargs, out)
        return None


def _dynamo(call: Call, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: OutFile) -> Any:
    saving = {k: call.options[k] for k in ("keep_initializers_as_inputs",) if k in call.options}
    options = {k: v for k, v in call.options.items() if k not in ("export_params", "keep_initializers_as_inputs")}
    program: Any = torch.onnx.export(
        model,
        args,
        None,
        kwargs=kwargs or None,
        dynamo=True,
        dynamic_shapes=shapes.to_shapes(call.inputs, _hinted(call.specs)),
        input_names=call.input_names,
        output_names=call.output_names,
        opset_version=call.opset,
        **{"verbose": False, **options},
    )
    _refuse_another_opset(call, program)
    _name_sizes(call, program)
    params = call.options.get("export_params", True)
    program.save(str(out.path), include_initializers=params, external_data=call.external_data, **saving)
    return program


def _refuse_another_opset(call: Call, program: Any) -> None:
    """The dynamo exporter leaves a graph that it cannot convert at the opset that it was made for, and says so in a
    log alone."""
    made = program.model.opset_imports.get("", call.opset)
    if made != call.opset:
        raise InputError(
            f"the dynamo exporter cannot write {type(call.model).__name__} in opset {call.opset}: what it writes has "
            f"opset {made}. Ask for opset {made}, or for the trace exporter (dynamo=False)"
        )


def _hinted(specs: Sequence[shapes.LeafSpec]) -> list[shapes.LeafSpec]:
    """torch.export knows no names as strings; the graph is given them afterwards."""
    return [{axis: Dim.DYNAMIC if isinstance(s, str) else s for axis, s in spec.items()} for spec in specs]


def _name_sizes(call: Call, program: Any) -> None:
    """Give the file's free sizes the user's names, where torch has a public way to (2.9 or so and later)."""
    leaves = call.inputs.graph_leaves("dynamo")
    inputs = program.model.graph.inputs
    if not hasattr(program, "rename_axes") or len(leaves) != len(inputs):
        return
    names: dict[str, str] = {}
    for leaf, value in zip(leaves, inputs, strict=True):
        for axis, spec in call.specs[leaf.index].items():
            size = value.shape[axis]
            if isinstance(spec, str) and not isinstance(size, int) and size.value is not None:
                names.setdefault(str(size.value), spec)
    if len(set(names.values())) == len(names):
        program.rename_axes(names)


def _torchscript(call: Call, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: OutFile) -> None:
    names = call.trace_names()
    leaves = call.inputs.graph_leaves("trace")
    axes = shapes.to_axes(call.specs, leaves, names[: len(leaves)])
    silent = contextlib.nullcontext() if call.options.get("verbose") else no_graphs_printed()
    with silent, positional(model, args, kwargs) as (target, all_args, rest), traced():
        if call.exporter == "script" and not isinstance(target, torch.jit.ScriptModule):
            target = torch.jit.script(target)
        if all_args and isinstance(all_args[-1], dict):
            all_args = (*all_args, {})  # a dict at the end would be taken for keywords
        torch.onnx.export(
            target,
            all_args,
            str(out.path),
            kwargs=rest or None,
            dynamo=False,
            dynamic_axes=axes or None,
            input_names=names,
            output_names=call.output_names,
            opset_version=call.opset,
            **call.options,
        )
