"""What is done to a file between its export and its proof: names and structure of outputs, larger nodes, a stamp.

The stamp says how the file was made: which patches acted, a digest of their code, the call that makes it again.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import itertools
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch

from onnxpatch.control_flow import BranchReport, report_of
from onnxpatch.control_flow.flat_outputs import name_outputs
from onnxpatch.control_flow.optional_outputs import flatten_reference
from onnxpatch.errors import InputError
from onnxpatch.exporters.exported import Exported
from onnxpatch.onnxfile import metadata, output_structure
from onnxpatch.onnxfile.attention_nodes import OPSET as ATTENTION
from onnxpatch.onnxfile.attention_nodes import name_attention
from onnxpatch.onnxfile.metadata import stamp
from onnxpatch.onnxfile.norm_nodes import FOUND_BY, name_norms, sum_residuals
from onnxpatch.onnxfile.output_structure import wants_optionals, write_optionals
from onnxpatch.onnxfile.runtime_forms import expand_rotary_tables, write_as_nodes
from onnxpatch.onnxfile.wrong_kernels import EXTREMES, compare_extremes, keep_zero_pads, write_small_sigmoids
from onnxpatch.patched import Patched
from onnxpatch.patching.registry import Patch
from onnxpatch.settings import Operators


def finalize_file(exported: Exported, patched: Patched, call: str) -> Exported:
    """The file with all that belongs into it: names, structure, optional outputs, how it was made."""
    request, model = exported.request, exported.request.model
    if patched.plan.settings.branches:
        exported = _with_structure(exported, report_of(request.model))
    elif request.layout is not None and request.layout.numbers:
        exported = replace(exported, flatten=request.layout.flat)
    operators = patched.plan.settings.operators
    if patched.plan.patches():  # the attempt without patches is to be what torch.onnx.export makes
        exported = replace(exported, notes=[*exported.notes, *_named(exported, operators)])
        if any(one.dim() > 1 and 0 in one.shape for one in itertools.chain(model.parameters(), model.buffers())):
            write_as_nodes(exported.path)
    if operators == "onnxruntime":
        sum_residuals(exported.path)
    return replace(exported, plan=_stamped(exported, patched, call))


def _named(exported: Exported, operators: Operators) -> list[str]:
    """Give what the model writes out in small operations its node; what to say of it."""
    path, has, found = exported.path, exported.may_have, {}
    # The file is read and written again only for what may be in it.
    if (operators == "onnxruntime" or exported.request.opset >= ATTENTION) and has("Softmax"):
        found["attention"] = name_attention(path, operators)
    if has(*FOUND_BY):
        found["normalization"] = name_norms(path)
    said = {"attention": "one node for each attention", "normalization": "one kernel for each normalization"}
    notes = [f"{said[what]} that the model writes out: {count}" for what, count in found.items() if count]
    if has(*EXTREMES) and (compared := compare_extremes(path)):
        notes.append(f"extremes of int64 written as comparisons: {compared}")
    if has("RotaryEmbedding"):
        expand_rotary_tables(path)
    if has("Pad") and has("MaxPool") and (kept := keep_zero_pads(path)):
        notes.append(f"zeros around the input of MaxPool written as -0.0: {kept}")
    if has("Log") and has("Sigmoid") and (spelled := write_small_sigmoids(path)):
        notes.append(f"sigmoids below a logarithm written as 1 / (1 + exp(-x)): {spelled}")
    return notes


def _with_structure(exported: Exported, forked: BranchReport | None) -> Exported:
    """Name the outputs of an export with branches after the model's structure, and write that into the file.

    An output that may be None is a value and a flag in the graph, or ONNX's own optional type. Eager's output is
    flattened in the same way from now on.
    """
    if forked is None:
        return exported
    if exported.request.model._forward_hooks:  # what a hook returns is the output, not what the forward returned
        forked = replace(forked, outputs=[], layout=None)
    path, names = exported.path, exported.request.output_names
    try:
        name_outputs(path, forked, names)
    except ValueError as error:
        raise InputError(f"output_names={list(names or ())}: {error}") from None
    if forked.layout is not None and wants_optionals(forked.layout):
        write_optionals(path)
    notes = [str(note) for note in forked.notes]
    notes += [f"dropped from the graph: {error} ({module}, {line})" for module, line, error in forked.dropped]
    notes += [f"conditions on sizes are answered as in the example, since: {error}" for error in forked.settled]
    flatten = functools.partial(_in_file_order, forked) if forked.outputs else None
    return replace(exported, notes=notes, flatten=flatten, refusal=next(iter(forked.settled), None))


def _in_file_order(forked: BranchReport, output: object) -> list[torch.Tensor | None]:
    """Eager's output as the file gives it. A missing one of ONNX's optional type is no output at all."""
    marked = (
        [leaf.get("form") == "onnx" for leaf in output_structure.output_leaves(forked.layout)] if forked.layout else []
    )
    flat: list[torch.Tensor | None] = []
    for slot, joined in zip(forked.outputs, marked or itertools.repeat(False), strict=False):
        value, *flag = flatten_reference(output, [slot])
        if not (joined and flag):
            flat += [value, *flag]
        elif value is not None:
            flat.append(value)
    return flat


# ------------------------------------------------------------------ how it was made
def _stamped(exported: Exported, patched: Patched, call: str) -> list[dict[str, Any]]:
    """Stamp the file. Returns the rows of the patches that acted: path, class and patch."""
    rows = _plan_rows(patched)
    acted = {row["patch"] for row in rows}
    code = digest(patch for patch in patched.plan.patches() if patch.name in acted)
    request = exported.request
    stamp(exported.path, request.exporter, rows, code, call, metadata.call_entry(request.call_names()))
    return rows


def _plan_rows(patched: Patched) -> list[dict[str, Any]]:
    made, acted = patched.plan, patched.scope.hits
    rows = [{"path": s.path, "class": type(s.module).__name__, "patch": s.patch.name} for s in made.swaps]
    functions = [p for p, _ in made.functions if acted[p.name]]  # those that only watched changed nothing
    return rows + [{"path": ", ".join(p.targets), "class": "function", "patch": p.name} for p in functions]


def digest(patches: Iterable[Patch]) -> str:
    """A digest of the code of patches: `sha256:` and 16 hex digits over their names and source, in any order."""
    # Sorted, since patches are loaded in the order of files and plug-ins.
    # Where one was typed into an interpreter, its place stands for the source.
    sources = sorted((one.name, _written(inspect.unwrap(one.stand_in)) or one.declared_at) for one in patches)
    return f"sha256:{hashlib.sha256(json.dumps(sources).encode()).hexdigest()[:16]}"


@functools.lru_cache(maxsize=512)  # reading source takes longer than a small file's stamp
def _written(stand_in: Any) -> str | None:
    try:
        return inspect.getsource(stand_in)
    except (OSError, TypeError):
        return None
