"""`verify`: compares an ONNX file with the model, at the sizes and on the data that the model accepts."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from onnxpatch.errors import InputError, RunError
from onnxpatch.exporters.dynamo import capture
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.dims import dynamic_dims
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.inputs.modules import as_module
from onnxpatch.inputs.validate import check_callbacks, check_numbers, check_runnable, check_surroundings, checked_path
from onnxpatch.limits import TimeLimit, limited
from onnxpatch.messages.text import progress_writer
from onnxpatch.onnxfile import metadata
from onnxpatch.onnxfile.graph import computes_in_less, opset_of
from onnxpatch.onnxfile.mapped_weights import bytes_of
from onnxpatch.onnxfile.metadata import versions
from onnxpatch.onnxfile.runtime import Graph, load_graphs
from onnxpatch.onnxfile.runtimes.interface import Provider
from onnxpatch.patching.forward_state import Snapshot, process_state_kept
from onnxpatch.results.quantized_distance import closeness
from onnxpatch.results.report import Report
from onnxpatch.verification.eager import Flatten
from onnxpatch.verification.input_matching import Feed, declared_by, in_widths, match_inputs, refuse_unfitting
from onnxpatch.verification.probe import Budget
from onnxpatch.verification.reference import Reference
from onnxpatch.verification.runner import compare_graphs, declared_limits

_log = logging.getLogger("onnxpatch")

_ADVICE = (
    "onnxpatch.export(model, ...) writes no file that is wrong; onnxpatch.doctor(model, ...) says what is at fault"
)
_COMPARE = "the file is quantized or in float16: compare='cosine' (or 'top1', 'relative') says how far it is off"
_CLOSER = "quantize by channel, leave out the first and last layers, give real inputs as data=, or allow more"
_CAPTURE = 600.0  # seconds for torch.export, which serves for its conditions alone here, and may never end


@process_state_kept()
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
    compare: str | None = None,
    max_probes: int = 16,
    max_seconds: float | None = None,
    max_memory: float | str | None = None,
    data: Sequence[Any] = (),
    guards: bool = True,
    sizes: Mapping[str, Sequence[int]] | None = None,
    runtime: str | Sequence[str] | None = None,
    providers: Sequence[Provider] | None = None,
    flatten: Flatten | None = None,
    progress: Callable[[str, int, int], None] | bool | None = None,
) -> Report:
    """Compare an ONNX file, from any exporter, with the model as it is now.

        report = onnxpatch.verify("m.onnx", model, (image,))

    file: its path. A file that says for which sizes it is right (`report.bounds`) is compared at these.
    args, kwargs: the example call.
    dynamic_shapes, dynamic_axes: the sizes that may change, in any form that torch takes; left out, those that are
        dynamic in the file.
    input_names: the file's inputs in the order of the arguments, where they have other names.
    tolerance: the largest difference allowed, as a share of an output's largest magnitude, in float32 and float64. It
        is 1e-2 in float16, 6e-2 in bfloat16; whole numbers and bools have to be equal.
    compare: for a file that is meant to differ, such as a quantized one, in place of the tolerance: "top1" (at least
        0.95 of all rows have their largest value where eager has it), "cosine" (at least 0.99) or "relative" (an error
        of at most 0.1); "cosine=0.98" sets another threshold. The report has all three for each output.
    data: more inputs to compare at, each args or (args, kwargs). sizes: more sizes, such as {"H": [32, 518]}.
    guards: also run torch.export on the model, and compare at sizes at which its conditions break.
    max_seconds: a limit for the whole. A comparison that takes longer ends early, and the report says so. Without it
        one run of the file may take 120 seconds, since a file can have a loop that never ends, and one that is stopped
        is wrong; math.inf lifts that limit too.
    max_probes, max_memory, runtime, providers: as in `export`.
    flatten: turns an output of the model into its tensors, in the order of the file's outputs.
    progress: called with (stage, done, of); True writes that on stderr.

    Returns a Report; `report.ok` is True for a right file. The model is afterwards as it was.
    Raises InputError where nothing can be compared: no file or a damaged one, inputs that do not fit, an example that
    the model refuses.
    """
    check_numbers(tolerance, max_probes)
    close = str(closeness(compare)) if compare is not None else ""
    check_callbacks(flatten, progress)
    check_surroundings()
    model = as_module(model)
    check_runnable(model)
    file = checked_path(file)
    budget = Budget.starting_now(max_probes, max_seconds, max_memory)
    inputs = Inputs(model, args, kwargs)
    try:
        graphs = load_graphs(file, runtime, budget.run_seconds, providers)
    except RunError as error:
        raise InputError(f"{file}: {error}") from None
    graph = graphs[0]
    feed = match_inputs(graph, inputs, input_names)
    names = list(feed.leaves) if input_names else None
    specs = shapes.read_shapes(inputs, dynamic_shapes, dynamic_axes, names, "trace", graph.outputs)
    if dynamic_shapes is None and dynamic_axes is None:
        specs = declared_by(graph, feed, inputs)
    feed = in_widths(graph, feed, inputs) if close else feed
    refuse_unfitting(graph, inputs, feed, specs)
    dims, state = dynamic_dims(inputs, specs), Snapshot(model, *inputs.objects())
    reference = Reference(model, inputs, dims, budget, flatten=flatten, data=data, sizes=sizes, state=state)
    limits = declared_limits(graph, feed, dims)
    limits.refuse_outside(dims)
    reference.also_at(limits.edges(dims))
    conditions: Any = None
    notes: list[str] = []
    # Without a size that may change there is no condition that could break; how far a file is does not depend on them.
    if guards and dims and not close:
        try:
            conditions, notes = _conditions(model, inputs, specs, budget)
        finally:
            # torch.export runs the model, which may keep tensors without data in its attributes.
            state.restore()
    _log.info("comparing %s with %s at %d inputs", file, type(model).__name__, len(reference.probes))
    report = Report(
        str(file), type(model).__name__, opset=opset_of(graph.proto) or None, tolerance=tolerance, compare=close,
        versions=versions(),
        notes=[*notes, *_notes(graph, feed, model, inputs), *state.notes()],
        bounds=limits.words, bytes=bytes_of(file),
    )  # fmt: skip
    found = compare_graphs(
        graphs, feed, reference, report, conditions=conditions, progress=progress_writer(progress), limits=limits
    )
    advice = _CLOSER if close else _COMPARE if computes_in_less(graph.proto) else _ADVICE
    return replace(found, advice=advice if found.wrong else "")


def _conditions(model: Any, inputs: Inputs, specs: Sequence[shapes.LeafSpec], budget: Budget) -> tuple[Any, list[str]]:
    """(the model's ExportedProgram, for its conditions on sizes alone, or None where torch.export refuses the model;
    notes for the report)."""
    left = budget.seconds_left
    try:
        with limited(_CAPTURE if left is None else min(_CAPTURE, left)):
            return capture(model, inputs, specs), []
    except TimeLimit as late:
        return None, [f"torch.export took longer than {late.seconds:g} s: its conditions on sizes were not read"]
    except Exception:  # a model that torch.export refuses has no conditions to lose
        return None, []


def _notes(graph: Graph, feed: Feed, model: torch.nn.Module, inputs: Inputs) -> Iterator[str]:
    made = metadata.read(graph.proto)
    if made is not None:
        yield made.sentence()
    if getattr(model, "training", False):
        yield "the model is in training mode: call model.eval() first, unless that is what was exported"
    fed = set(feed.leaves.values())
    unfed = [leaf.name for leaf in inputs.leaves if leaf.is_tensor and leaf.index not in fed]
    if unfed:
        yield f"the file has no input for {', '.join(unfed)} of the example"
