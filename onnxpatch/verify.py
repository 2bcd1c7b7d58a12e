"""`verify`: is this ONNX file what the model computes, at the sizes and on the data that the model accepts?"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from onnxpatch.arguments import shapes
from onnxpatch.arguments.dims import DynamicDim, dynamic_dims
from onnxpatch.arguments.inputs import Inputs, Leaf
from onnxpatch.checking.check import check_graph, excuse_unsteady
from onnxpatch.checking.findings import add_findings
from onnxpatch.checking.guards import breaking_probes, guards_of
from onnxpatch.checking.probe import Limits, Probe
from onnxpatch.checking.probes import ProbeSearch
from onnxpatch.checking.reference import Answer, Eager, Flatten
from onnxpatch.checking.runtime import Graph, RunError
from onnxpatch.errors import InputError
from onnxpatch.reporting import provenance
from onnxpatch.reporting.report import Report
from onnxpatch.versions import versions

_LEAST = 6  # probes that are run whatever they cost: they come in the order of how much they tell
_QUICK = 0.02  # seconds: a model that answers faster than this may be asked at much larger sizes
_SLOW = 0.2  # seconds: a model that takes longer is not asked anything twice


@dataclass
class Subject:
    """A model with its example call, the sizes that may change, and what eager has answered so far."""

    model: Any
    inputs: Inputs
    dims: list[DynamicDim]
    eager: Eager
    example: Answer
    search: ProbeSearch
    probes: list[Probe]


def subject(
    model: Any,
    inputs: Inputs,
    dims: list[DynamicDim],
    *,
    limits: Limits,
    flatten: Flatten | None = None,
    data: Sequence[Any] = (),
) -> Subject:
    """Ask the unpatched model at the example and find the probes. Raises InputError where eager refuses the example."""
    eager = Eager(model, inputs, flatten)
    example = eager.ask(inputs.values())
    if example.seconds < _SLOW:  # the first call of a model warms caches: it is no measure of time
        eager.seconds = 0.0
        example = eager.ask(inputs.values())
    if example.outputs is None:
        raise InputError(f"the model itself refuses the example: {example.error}")
    limits.seconds = max(limits.seconds, 4 * example.seconds)
    limits.growth = 6.0 if example.seconds < _QUICK else 2.5
    search = ProbeSearch(eager, inputs, dims, limits)
    probes = search.find(example) + [_given(search, inputs, eager, one, i) for i, one in enumerate(data)]
    return Subject(model, inputs, dims, eager, example, search, probes)


def _given(search: ProbeSearch, inputs: Inputs, eager: Eager, one: Any, index: int) -> Probe:
    """A probe that the caller hands in: (args, kwargs), or args alone."""
    pair = isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], tuple) and isinstance(one[1], dict)
    args, kwargs = one if pair else (one, {})
    other = Inputs(eager.model, args, kwargs)
    if len(other.leaves) != len(inputs.leaves):
        raise InputError(f"data[{index}] has {len(other.leaves)} values, the example {len(inputs.leaves)}")
    values = other.values()
    answer = eager.ask(values)
    if answer.outputs is None:
        raise InputError(f"data[{index}]: the model itself refuses it: {answer.error}")
    sizes = {dim.name: int(values[dim.places[0][0]].shape[dim.places[0][1]]) for dim in search.dims}
    return Probe(f"data[{index}]", "given", sizes, values, answer.outputs, answer.raw)


def verify(
    file: str | os.PathLike[str],
    model: torch.nn.Module,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    tolerance: float = 1e-3,
    max_probes: int = 16,
    data: Sequence[Any] = (),
    guards: bool = True,
    runtime: str | None = None,
    flatten: Flatten | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Report:
    """Hold an ONNX file, however it was made, against the model as it is now.

    args, kwargs: the example call; dynamic_shapes or dynamic_axes: the sizes that may change, in any form that torch
    takes (left out: those that the file itself shows as free). input_names: the file's inputs in the order of the
    arguments, where they are named otherwise. tolerance: the largest difference allowed, as a share of the output's
    largest magnitude (float32; float16 1e-2, bfloat16 6e-2, whole numbers and bools exact). data: more inputs to try,
    each args or (args, kwargs), special values included. guards: also run torch.export on the model and probe the
    sizes at which its conditions break. runtime: 'onnxruntime' or 'reference'. flatten: output -> its tensors in the
    order of the graph's outputs. progress: called with (stage, done, of).

    Returns a Report; `report.ok` is the verdict. The model is as it was afterwards.
    Raises InputError for what cannot be compared: no file, a corrupt one, inputs that do not fit, an example that the
    model refuses.
    """
    start = time.perf_counter()
    inputs = Inputs(model, args, kwargs)
    report = Report(str(file), type(model).__name__, tolerance=tolerance, versions=versions())
    try:
        graph = Graph(file, runtime)
    except RunError as error:
        raise InputError(f"{file}: {error}") from None
    names, order = match_inputs(graph, inputs, input_names)
    specs = shapes.read(inputs, dynamic_shapes, dynamic_axes, names if input_names else None, "trace", graph.outputs)
    if dynamic_shapes is None and dynamic_axes is None:
        specs = _declared_by(graph, names, order, inputs)
    dims = dynamic_dims(inputs, specs)
    found = subject(model, inputs, dims, limits=Limits(probes=max_probes), flatten=flatten, data=data)
    report.opset = next((o.version for o in graph.proto.opset_import if o.domain in ("", "ai.onnx")), None)
    exported = _captured(model, inputs, specs) if guards and dims else None
    made = provenance.read(graph.proto)
    if made is not None:
        report.notes.append(made.sentence())
    hold_against(report, graph, found, names, order, exported=exported, progress=progress)
    report.seconds["verify"] = time.perf_counter() - start
    return report


def _captured(model: Any, inputs: Inputs, specs: Sequence[shapes.LeafSpec]) -> Any:
    """The model's ExportedProgram, for its guards alone; None where torch.export refuses the model."""
    from onnxpatch.checking.capture import capture

    try:
        return capture(model, inputs, specs)
    except Exception:
        return None


def hold_against(
    report: Report,
    graph: Graph,
    found: Subject,
    names: Sequence[str],
    order: Sequence[int],
    *,
    exported: Any = None,
    progress: Callable[[str, int, int], None] | None = None,
    within: float | None = None,
) -> None:
    """Run the graph at every probe, and at sizes that break a dropped guard; write what was found into the report.

    within: seconds after which no more than the most telling probes are run.
    """
    end = math.inf if within is None else time.perf_counter() + within
    report.runtime = graph.runtime
    report.dimensions = {dim.name: dim.size for dim in found.dims}
    guards = guards_of(exported, found.inputs, found.dims) if exported is not None else []
    broken = breaking_probes(guards, found.search, seconds=min(2.0, within or 2.0)) if guards else []
    first, rest = found.probes[:_LEAST], found.probes[_LEAST:]
    probes = list({id(probe): probe for probe in (*first, *(probe for _, probe in broken), *rest)}.values())
    least = _LEAST + len(broken)
    for done, probe in enumerate(probes):
        if done >= least and time.perf_counter() > end:
            report.notes.append(f"{len(probes) - done} more inputs were left out, to take no longer than the export")
            del probes[done:]
            break
        if progress:
            progress(graph.runtime, done, len(probes))
        checks = check_graph(graph, names, order, [probe], report.tolerance)
        report.checks += excuse_unsteady(checks, [probe], found.eager, report.tolerance)
    report.refused, report.first_refusal = found.search.refusals.count, found.search.refusals.first
    add_findings(report, graph, found.dims, names, order, probes, broken)


# ------------------------------------------------------------------ which leaf feeds which input
def match_inputs(graph: Graph, inputs: Inputs, input_names: Sequence[str] | None = None) -> tuple[list[str], list[int]]:
    """(names of the graph's inputs, index of the leaf that feeds each). Raises InputError where they do not fit."""
    have = [i.name for i in graph.inputs]
    if input_names:
        leaves = _leaves_for(len(input_names), inputs)
        if leaves is not None:
            pairs = [(n, leaf) for n, leaf in zip(input_names, leaves, strict=True) if n in have]
            if len(pairs) == len(have):
                return [n for n, _ in pairs], [leaf.index for _, leaf in pairs]
        raise InputError(f"input_names are {list(input_names)}, the file's inputs {have}, the example {_told(inputs)}")
    by_name = [inputs.find(name) for name in have]
    if all(leaf is not None for leaf in by_name):
        return have, [leaf.index for leaf in by_name if leaf is not None]
    by_place = _leaves_for(len(have), inputs)
    if by_place is None:
        raise InputError(
            f"{graph.path.name} takes {len(have)} inputs {have}, the example gives {_told(inputs)}: "
            "give the example that it was exported with, or input_names="
        )
    return have, [leaf.index for leaf in by_place]


def _leaves_for(count: int, inputs: Inputs) -> list[Leaf] | None:
    for exporter in ("dynamo", "trace"):
        leaves = inputs.graph_leaves(exporter)
        if len(leaves) == count:
            return leaves
    return None


def _told(inputs: Inputs) -> str:
    told = [f"{leaf.name} {tuple(leaf.value.shape)}" for leaf in inputs.leaves if leaf.is_tensor]
    return f"{len(told)} tensors: {', '.join(told)}"


def _declared_by(graph: Graph, names: Sequence[str], order: Sequence[int], inputs: Inputs) -> list[shapes.LeafSpec]:
    """The sizes that the file shows as free, when the caller declares none."""
    specs: list[shapes.LeafSpec] = [{} for _ in inputs.leaves]
    for name, leaf in zip(names, order, strict=True):
        value = inputs.leaves[leaf].value
        shape = graph.input_shape(name)
        if isinstance(value, torch.Tensor) and len(shape) == value.dim():
            free = {a: s for a, s in enumerate(shape) if not isinstance(s, int)}
            specs[leaf] = {a: s or f"{name}_dim{a}" for a, s in free.items()}
    return specs
