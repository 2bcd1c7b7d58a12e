"""`ExportRequest`: the arguments of an export, completed by the model's own example and checked before any work."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from onnxpatch.errors import InputError, ScriptedModelError, UnknownExporterError
from onnxpatch.exporters.opened_call import OutputLayout
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.dims import DynamicDim, dynamic_dims
from onnxpatch.inputs.given_model import ModelExample, declared_example
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.inputs.validate import check_opset, check_surroundings, refuse_no_module
from onnxpatch.patching.when import listed_selectors
from onnxpatch.settings import EXPORTERS, Exporter

OPSET = 18
# Of the installed torch, so that options of newer versions are passed on.
_TORCH = frozenset(inspect.signature(torch.onnx.export).parameters)


class OpsetNotWritten(InputError):
    """The dynamo exporter cannot write the model in the opset that was asked for; another exporter may."""


@dataclass(frozen=True)
class ExportRequest:
    """One export as the user asked for it. It is immutable.

    specs: per leaf, axis -> what was declared; options: passed to torch.onnx.export as they are; patching: keywords of
    `patch_model`; layout: of the model's output, where it is known and the file is to have it.
    """

    model: Any
    inputs: Inputs
    specs: list[shapes.LeafSpec]
    exporter: Exporter
    opset: int = OPSET
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    external_data: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    patching: Mapping[str, Any] = field(default_factory=dict)
    layout: OutputLayout | None = None

    @classmethod
    def parse(
        cls,
        model: Any,
        args: Any,
        kwargs: Mapping[str, Any] | None,
        exporter: Exporter,
        *,
        dynamic_shapes: Any = None,
        dynamic_axes: Mapping[str, Any] | None = None,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        opset_version: int | None = None,
        external_data: bool = False,
        options: Mapping[str, object] | None = None,
        patching: Mapping[str, object] | None = None,
    ) -> ExportRequest:
        """Check the arguments of `export`. Raises InputError, or a subclass, for those that cannot be exported.

        An example, dynamic shapes and names that are not given are taken from the model, if it declares them.
        """
        check_surroundings(exporter)
        refuse_no_module(model)
        if isinstance(model, torch.jit.ScriptModule) and exporter == "dynamo":
            raise ScriptedModelError(
                "the dynamo exporter cannot read a scripted or traced model: ask for exporter='trace', which takes "
                "many of them (exporter='auto' picks it by itself), or pass the nn.Module that was scripted"
            )
        opset = OPSET if opset_version is None else opset_version
        check_opset(opset)
        call = ModelExample(args, kwargs, dynamic_shapes, input_names, output_names)
        call = _completed(model, call, dynamic_axes)
        inputs, given_names = Inputs(model, call.args, call.kwargs), (call.input_names, call.output_names)
        specs = shapes.read_shapes(
            inputs, call.dynamic_shapes, dynamic_axes, call.input_names, exporter, call.output_names or ()
        )
        more = (dict(options or {}), dict(patching or {}))
        return cls(model, inputs, specs, exporter, opset, *given_names, external_data, *more)

    @functools.cached_property
    def dims(self) -> list[DynamicDim]:
        """The sizes that may change."""
        return dynamic_dims(self.inputs, self.specs)

    @property
    def plain(self) -> bool:
        """Whether no patch may act: `only=()` is how a caller asks for that."""
        only = self.patching.get("only")
        return only is not None and not listed_selectors(only)

    def trace_names(self) -> list[str]:
        """The names of the TorchScript exporter's graph inputs: the user's, then the arguments' own."""
        graph = self.inputs.graph_leaves("trace")
        given = list(self.input_names or ())
        # In the TorchScript exporter's graph, inputs and parameters share one space of names.
        taken = set(self.model.state_dict()) | set(given)
        own = [f"{leaf.name}_input" if leaf.name in taken else leaf.name for leaf in graph[len(given) :]]
        return given + own

    def dynamo_names(self) -> Sequence[str] | None:
        """The names of the dynamo exporter's graph inputs, or of the first ones; None for torch's own."""
        leaves = self.inputs.graph_leaves("dynamo")
        if not any("." in leaf.name for leaf in leaves):  # without tensors of a cache, which torch would name ..._0_key
            return self.input_names
        return [*(self.input_names or ()), *(leaf.name for leaf in leaves[len(self.input_names or ()) :])]

    def call_names(self) -> list[tuple[str, object]]:
        """(name of the graph's input, value) of every tensor, number and text of the call, in the signature's order.

        What the graph has no input for is called after its argument.
        """
        names = self.dynamo_names() if self.exporter == "dynamo" else self.trace_names()
        graph = self.inputs.graph_leaves(self.exporter)
        named = {leaf.index: name for leaf, name in zip(graph, names or (), strict=False)}
        return [
            (named.get(leaf.index, leaf.name), leaf.value)
            for leaf in self.inputs.in_signature_order()
            if leaf.is_tensor or leaf.is_number or isinstance(leaf.value, str)
        ]

    def names_among(self, have: Sequence[str]) -> Sequence[str] | None:
        """The names of the file's inputs in the order of the leaves; None to match them by position.

        have: the names in the file.
        """
        if self.exporter != "dynamo":
            return self.trace_names()
        return have if len(have) == len(self.inputs.graph_leaves("dynamo")) else None


def _completed(model: Any, call: ModelExample, dynamic_axes: object) -> ModelExample:
    """The caller's example; what it leaves open is taken from the model's own, if that declares one."""
    given, sizes_open = _given(call.args, call.kwargs), call.dynamic_shapes is None and dynamic_axes is None
    # A captured program has dynamic sizes of its own.
    if given and not (sizes_open and isinstance(getattr(model, "program", None), torch.fx.GraphModule)):
        return call
    own = declared_example(model)
    if own is None:
        return call
    sizes = own.dynamic_shapes if sizes_open else call.dynamic_shapes
    if given:
        return replace(call, dynamic_shapes=sizes)
    names = call.input_names or own.input_names, call.output_names or own.output_names
    return ModelExample(own.args, own.kwargs, sizes, *names)


def _given(args: object, kwargs: Mapping[str, object] | None) -> bool:
    """Whether the caller gave arguments, so that the model's own example is not needed."""
    return bool(kwargs) or not isinstance(args, tuple | list) or len(args) > 0


def chosen_exporter(exporter: str | None, dynamo: bool | None = None, script: bool | None = None) -> Exporter:
    """The exporter by name, by torch's keywords dynamo= and script=, or by default (dynamo).

    Raises UnknownExporterError, and InputError if two of the three disagree.
    """
    if exporter is None:
        if script and dynamo is not False:
            raise InputError("script=True needs dynamo=False: torch.export does not read scripted code")
        return "dynamo" if dynamo is not False else "script" if script else "trace"
    chosen = next((known for known in EXPORTERS if known == exporter), None)
    if chosen is None:
        raise _unknown(exporter, EXPORTERS)
    for name, value, wanted in (("dynamo", dynamo, chosen == "dynamo"), ("script", script, chosen == "script")):
        if value is not None and value != wanted:
            raise InputError(f"exporter={exporter!r} and {name}={value!r} disagree: give one of them")
    return chosen


def _unknown(exporter: str | None, known: Iterable[str]) -> UnknownExporterError:
    return UnknownExporterError(f"exporter={exporter!r} is not known: use one of {', '.join(known)}")


def requested_exporters(
    model: torch.nn.Module, exporter: str | None, dynamo: bool | None = None, script: bool | None = None
) -> tuple[Exporter, ...]:
    """The exporters that may be tried, in order: two for "auto", else the requested one.

    Raises what `chosen_exporter` raises. For a scripted model, torch.export is left out: it cannot read scripted code.
    """
    if exporter not in (None, "auto", *EXPORTERS):
        raise _unknown(exporter, (*EXPORTERS, "auto"))
    if exporter != "auto":
        return (chosen_exporter(exporter, dynamo, script),)
    for name, value in (("dynamo", dynamo), ("script", script)):
        if value is not None:
            raise InputError(f"exporter='auto' and {name}={value!r} disagree: give one of them")
    return ("trace",) if isinstance(model, torch.jit.ScriptModule) else ("dynamo", "trace")


def split_options(options: Mapping[str, object], named: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(options for torch.onnx.export, options for patches). Raises InputError for a misspelled known name.

    named: the options of `export` itself.
    """
    known = _TORCH | set(named)
    ours = {name: value for name, value in options.items() if name not in _TORCH}
    for name in ours:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
        near = near or [one for one in known if one.startswith(f"{name}_")]  # opset for opset_version
        if near:
            raise InputError(f"export has no option {name!r}: did you mean {near[0]!r}?")
    return {name: value for name, value in options.items() if name in _TORCH}, ours
