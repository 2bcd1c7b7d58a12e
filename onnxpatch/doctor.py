"""`doctor` finds why a model does not export, or exports wrong, and what cures it; `new_patch` drafts a patch of it."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from onnxpatch.diagnosis.parts.part_trials import RecordedPart, recorded_part
from onnxpatch.diagnosis.parts.search import Search
from onnxpatch.diagnosis.treatment import treat
from onnxpatch.diagnosis.trial import Subject
from onnxpatch.errors import InputError, ScriptedModelError
from onnxpatch.exporters.artifact import write_text
from onnxpatch.exporters.request import ExportRequest, chosen_exporter
from onnxpatch.inputs.modules import as_module
from onnxpatch.inputs.validate import check_callbacks, check_numbers, check_runnable, is_real
from onnxpatch.messages.text import Progress, progress_writer
from onnxpatch.onnxfile.metadata import versions
from onnxpatch.patching.fingerprints import fingerprint
from onnxpatch.patching.forward_state import process_state_kept
from onnxpatch.patching.registry import REGISTRY, Registry
from onnxpatch.results.checks import AttemptResult
from onnxpatch.results.diagnosis import Culprit, Diagnosis
from onnxpatch.verification.probe import Budget
from onnxpatch.verification.reference import Reference


def doctor(
    model: torch.nn.Module,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    dynamo: bool | None = None,
    exporter: str | None = None,
    opset_version: int = 18,
    tolerance: float = 1e-3,
    max_probes: int = 16,
    data: Sequence[Any] = (),
    proposals: bool = True,
    budget: float = 180.0,
    registry: Registry = REGISTRY,
    progress: Progress | bool | None = None,
    attempts: Sequence[object] = (),
) -> Diagnosis:
    """Find why a model does not export, or exports wrong, and what cures it.

        print(onnxpatch.doctor(model, (image,), dynamic_shapes=({0: "B"},)))

    The model is exported without any patch. If that is refused, or wrong at some size or data that the model itself
    accepts, its submodules are exported alone, each with the inputs that it gets inside the model, from the top down to
    the smallest that fails by itself. Its line is taken from the exporter's error, its warnings and the sizes that it
    fixed. Cures are tried on that module: the registered patches, branches=True, the other exporter. If the plain
    export is right and the patched one wrong, the patches are bisected for the one at fault.

    args, kwargs: the example call.
    exporter: "dynamo", "trace" or "script"; or torch's own dynamo=False.
    dynamic_shapes, dynamic_axes, input_names, opset_version: as in `export`.
    tolerance: as in `export`. max_probes: the most inputs that are compared.
    data: more inputs to compare at, each args or (args, kwargs).
    proposals: False to find the culprit only.
    budget: seconds after which no further export is started.
    registry: the patches to try.
    progress: called with (what is exported, exports so far, 0); True writes that on stderr.
    attempts: what `export` tried on this model, `report.attempts` or `error.attempts`. Cures that it tried on the whole
        model are not tried there again, and the one that it delivered is proposed first.

    Returns a Diagnosis: `.ok`, `.culprits`, `.proposals`. The model is left as it was.
    Raises InputError where the arguments do not fit or the model itself refuses the example, UnknownExporterError for
    another exporter, ScriptedModelError for a torch.jit.ScriptModule.
    """
    check_numbers(tolerance, max_probes)
    check_callbacks(progress=progress)
    if not is_real(budget):
        raise InputError(f"budget={budget!r}: give the seconds after which no further export is started")
    start = time.perf_counter()
    model = as_module(model)
    request = ExportRequest.parse(
        model, args, kwargs, chosen_exporter(exporter, dynamo), dynamic_shapes=dynamic_shapes,
        dynamic_axes=dynamic_axes, input_names=input_names, opset_version=opset_version,
    )  # fmt: skip
    if isinstance(model, torch.jit.ScriptModule):
        raise ScriptedModelError(
            "the model is scripted, so that its parts cannot be exported alone: pass the nn.Module that was scripted"
        )
    check_runnable(model)
    reference = Reference(model, request.inputs, request.dims, Budget.starting_now(max_probes), data=data)
    root = Subject(model, request.inputs, request.specs, reference.probes, request.input_names)
    diagnosis = Diagnosis(type(model).__name__, request.exporter, request.opset, versions=versions())
    diagnosis.dimensions = {dim.name: dim.size for dim in request.dims}
    if model.training:
        diagnosis.notes.append("the model is in training mode: call model.eval() first, unless that is what you export")
    made = [one for one in attempts if isinstance(one, AttemptResult)]
    search = Search(root, diagnosis, tolerance, budget, registry, progress_writer(progress), made)
    with process_state_kept():
        found_parts = search.run()
        treat(search, found_parts, proposals)
    diagnosis.recorded = tuple(map(recorded_part, found_parts)) if search.whole.fails else ()
    diagnosis.seconds = time.perf_counter() - start
    return diagnosis


_MOST_LINES = 12  # of the code as it is, shown above the stand-in
_WIDTH = 100


def new_patch(diagnosis: Diagnosis, file: str | os.PathLike[str]) -> Path:
    """Write a patch for the likeliest culprit that no patch cures, to be filled in; returns the file.

    It declares the class as target, the fingerprint of the method as it is now, and a proof: the module itself, with
    inputs that were recorded of it, in a second file of the same name that ends in `.pt`. `onnxpatch prove FILE` runs
    the proof. `--patches FILE` uses the patch in any command, and importing the file does in Python.

    Raises InputError where there is no such culprit, or its calls cannot be repeated.
    """
    culprit, part = _uncured(diagnosis)
    path = Path(file)
    if path.suffix != ".py":
        raise InputError(f"{path}: a patch is Python: give a name that ends in .py")
    if not part.calls:
        raise InputError(
            f"{culprit.name} ({culprit.cls}) is called in a way that a proof cannot repeat: by keyword alone, or with "
            "other numbers each time. Write the patch by hand: see CONTRIBUTING"
        )
    # A module that its class alone can build need not be pickled, and its proof can be read.
    builds = _builds_alone(part.module)
    recorded: object = list(part.calls) if builds else {"module": part.module, "inputs": list(part.calls)}
    try:
        torch.save(recorded, path.with_suffix(".pt"))
    except Exception as error:
        raise InputError(
            f"{culprit.name} ({culprit.cls}) cannot be written to {path.with_suffix('.pt')} ({error}): define its "
            "class in a module that can be imported"
        ) from error
    write_text(path, _source(diagnosis, culprit, part, builds))
    return path


def _uncured(diagnosis: Diagnosis) -> tuple[Culprit, RecordedPart]:
    cured = []
    for culprit, part in zip(diagnosis.culprits, diagnosis.recorded, strict=False):
        names = [one.name for one in culprit.proposals if one.kind == "patch" and one.tried]
        if not names:
            return culprit, part
        cured += names
    if cured:
        raise InputError(
            f"there is nothing to write: the registered patches cure it ({', '.join(dict.fromkeys(cured))})"
        )
    raise InputError("the diagnosis names no part of the model that a patch could replace: nothing to write")


def _builds_alone(module: torch.nn.Module) -> bool:
    """Whether the class, made without arguments, gives such a module: no weights, the same plain attributes."""
    if module.state_dict() or list(module.children()):
        return False
    try:
        fresh = type(module)()
    except Exception:  # it needs arguments
        return False
    return _plain_attributes(fresh) == _plain_attributes(module)


def _plain_attributes(module: torch.nn.Module) -> dict[str, str]:
    return {
        name: repr(value) for name, value in vars(module).items() if not name.startswith("_") and name != "training"
    }


def _source(diagnosis: Diagnosis, culprit: Culprit, part: RecordedPart, builds: bool) -> str:
    cls = type(part.module)
    target = f"{cls.__module__}.{cls.__qualname__}"
    method = getattr(cls, part.method)
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()
    load = 'torch.load(Path(__file__).with_suffix(".pt")'
    if builds:
        first, build, inputs = (
            [f"from {cls.__module__} import {cls.__qualname__.partition('.')[0]}"],
            cls.__qualname__,
            load,
        )
    else:
        first, build, inputs = [], 'lambda: RECORDED["module"]', 'RECORDED["inputs"'
    saved = [f"RECORDED = {load}, weights_only=False)  # it unpickles the module: your own file alone", "", ""]
    shapes = repr(part.dynamic_shapes).replace("'", '"')
    lines = [
        f'"""A patch of {target}, drafted by the doctor. Fill in {part.method}(), then: onnxpatch prove FILE."""',
        "",
        "from pathlib import Path",
        "",
        "import torch",
        *first,
        "",
        "import onnxpatch",
        "",
        *([] if builds else saved[:2]),
        "",
        "@onnxpatch.patch(",
        f'    "{target}",',
        f'    name="{name}",',
        f"    why={_why(culprit)},",
        *_bodies(part.method, fingerprint(method)),
        "    proof=onnxpatch.Proof(",
        f"        build={build},",
        f"        inputs={inputs}{')' if builds else ']'},",
        *([f"        dynamic_shapes={shapes},"] if part.dynamic_shapes else []),
        f'        fails=("{diagnosis.exporter}",),',
        "    ),",
        ")",
        f"class {cls.__name__}StandIn:",
        f"    def {part.method}{_signature(method)}:",
        *_as_it_is(method, culprit),
        '        raise onnxpatch.RefusedError("fill this in; self is the module, with its parameters")',
        "",
    ]
    return "\n".join(lines)


def _why(culprit: Culprit) -> str:
    """The error's own words, as people search for them, in quotes."""
    first = " ".join((culprit.error or culprit.construct).split())
    return json.dumps(textwrap.shorten(first, _WIDTH - 20, placeholder="…"), ensure_ascii=False)


def _bodies(method: str, code: str | None) -> list[str]:
    if code is None:
        return []
    return [
        "    # The code that it is written for: another one is left alone.",
        f'    when=onnxpatch.When(bodies={{"{method}": ("{code}",)}}),',
    ]


def _signature(method: object) -> str:
    """The parameters without annotations; defaults that are no literals become `...`."""
    assert callable(method)
    signature = inspect.signature(method)
    parameters = [
        parameter.replace(annotation=parameter.empty, default=_default(parameter.default))
        for parameter in signature.parameters.values()
    ]
    # The default `...` of a signature is printed by its type's name.
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty)).replace("Ellipsis", "...")


def _default(value: object) -> object:
    if value is inspect.Parameter.empty:
        return value
    try:
        ast.literal_eval(repr(value))
    except (ValueError, SyntaxError):
        return ...
    return value


def _as_it_is(method: object, culprit: Culprit) -> list[str]:
    """The body of the method as comments, with the line at fault marked by the culprit's own line."""
    assert callable(method)
    try:
        code = textwrap.dedent(inspect.getsource(inspect.unwrap(method))).splitlines()
    except (OSError, TypeError):
        return [f"        # at fault: {culprit.code}"] if culprit.code else []
    body = textwrap.dedent("\n".join(code[1:])).splitlines()
    shown = [line for line in body if line.strip()][:_MOST_LINES]
    return ["        # as it is:", *(f"        #     {line}"[:_WIDTH].rstrip() for line in shown)]
