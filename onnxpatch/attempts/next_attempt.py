"""Decides from the failures so far what is tried next, and what is said where no attempt is right at every size.

    1  as asked
    2  a stand-in raised the error, or a patch was found at fault:  without that patch
       a size inside the model is 1 in the example:                 traced at larger ones
    3  torch alone:                                                 plain
    4  a Python branch or loop on data or a size failed:            branches=True (or False)
    5  a file is wrong at other sizes of a model with branches:     traced at such sizes: `if n % 2: x = pad(x, n % 2)`
                                                                    is right at every size where its body is traced
    6  the model's code asks whether it is exported:                as_in_eager=True
    7  exporter="auto":                                             the other exporter, in the same order

Attempts that would fail in the same way are left out. If torch refused a branch on data in the model's own code,
plain would stop at the same line: then branches=True comes first, and plain only if a patch acted, which may have
caused the branch. Where plain alone is right, `better_than_plain` finds the patch that spoils the export, by leaving
patches out.

Where none is right, the error ends in what a user types next: one line, the most promising call first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from onnxpatch.attempts.attempt import Attempt
from onnxpatch.attempts.attempt_log import AttemptLog
from onnxpatch.attempts.bounded_files import Bounds
from onnxpatch.attempts.failure import Failure
from onnxpatch.attempts.one_attempt import Proven
from onnxpatch.diagnosis.operator_support import by_dynamo, torchscript_opsets
from onnxpatch.diagnosis.proposals import fewest
from onnxpatch.errors import ExportError, VerificationError
from onnxpatch.exporters.exported import OUT_OF_TORCH
from onnxpatch.exporters.request import OPSET, ExportRequest
from onnxpatch.messages.text import WIDTH
from onnxpatch.results.checks import attempt_lines
from onnxpatch.results.report import Report
from onnxpatch.results.report_text import headline, shown, text
from onnxpatch.settings import Exporter

_MOST_LEFT_OUT = 4  # patches; with more, plain is faster


def next_attempt(
    asked: Attempt, exporters: Sequence[Exporter], failed: Sequence[Failure], bounded: bool = False
) -> Attempt | None:
    """The next attempt; None if no other can help.

    asked: the first one. exporters: those that may be tried, in their order. failed: oldest first. bounded: whether a
    file was made that is wrong at the smallest sizes only: then branches=True, which may take long, is left out.
    """
    if failed and failed[-1].kind == "late":  # max_seconds is over
        return None
    tried = {one.attempt for one in failed}
    for exporter in exporters:
        mine = [one for one in failed if one.attempt.exporter == exporter]
        for attempt in _ways(replace(asked, exporter=exporter), mine):
            if attempt not in tried and not (bounded and attempt.branches and not asked.branches):
                return attempt
    return None


def _ways(first: Attempt, failed: Sequence[Failure]) -> Iterator[Attempt]:
    """The attempts with one exporter that make sense after these failures, in order, including the failed ones."""
    yield first
    yield from _cured(failed)
    # The patches that were found at fault stay out of the other ways too.
    base = next((one.attempt for one in reversed(failed) if not one.attempt.plain), first)
    if not failed:
        return
    if first.branches:
        # branches=True runs more of the model's code, and may refuse what is not needed.
        yield replace(base, branches=False)
    if not _plain_is_hopeless(failed):
        yield first.as_plain()
    # torch.jit.script compiles branches itself.
    if any(one.branch for one in failed) and first.exporter != "script":
        yield replace(base, branches=True)
        if any(one.patches for one in failed):
            yield first.as_plain()
    yield from (replace(one.attempt, traced=one.other) for one in failed[:1] if one.other and not one.attempt.traced)
    if failed[0].asks:
        yield replace(base, branches=first.branches, traced=(), as_in_eager=True)


def _cured(failed: Sequence[Failure]) -> Iterator[Attempt]:
    """Each failed attempt without what is known to be its cause."""
    for one in failed:
        if one.at_fault and len(one.attempt.exclude) < _MOST_LEFT_OUT:
            yield one.attempt.without(one.at_fault)
        if one.larger and not one.attempt.traced:
            yield replace(one.attempt, traced=one.larger)


def _plain_is_hopeless(failed: Sequence[Failure]) -> bool:
    """Whether plain would fail the same way.

    torch refused a branch on data; or no patch acted on a graph that is wrong, or has an operator without translation.
    """
    patched = [one for one in failed if not one.attempt.plain and not one.attempt.branches]
    untouched = [one for one in patched if not one.patches]
    return any(one.on_data for one in patched) or any(one.kind == "wrong" or one.operator for one in untouched)


def refusal(
    log: AttemptLog, exporters: Sequence[Exporter] = (), bounds: Bounds | None = None
) -> ExportError | VerificationError:
    """The first attempt's error. Its message lists the attempts, if there were several, and ends in what to type.

    exporters, bounds: as `export` had them.
    """
    error, results, advice = log.error, log.results(), what_to_type(log, exporters, bounds)
    assert error is not None
    error.attempts = tuple(results) if len(results) > 1 else ()
    error.found, error.advice = str(error.args[0]), advice
    if isinstance(error, VerificationError) and isinstance(error.report, Report):
        error.report = replace(error.report, attempts=results, call="", advice=advice)
        # The first line, and the hint behind it, were written before anything else was tried.
        said = str(error.args[0]).partition(f"\n{headline(error.report)}")[0]
        error.args = (f"{said}\n{text(error.report, row=False)}", *error.args[1:])
        return error
    tried = []
    if len(results) > 1:
        tried = [
            f"{len(results)} attempts were made, and none is right:",
            *(f"  {one}" for one in attempt_lines(results, str(error.args[0]))),
        ]
    error.args = ("\n".join([str(error.args[0]), *map(shown, tried), f"{TITLE}{advice}"]), *error.args[1:])
    return error


_TRIES = 8  # exports at most


def better_than_plain(log: AttemptLog, plain: Proven) -> tuple[Proven, str]:
    """(the file to deliver, a note that names the patches at fault), if plain is right and the patched file is not.

    The file to deliver is the export without just these patches, if it is right; else the plain one.
    """
    patched = [one for one in log.failed if _is_like(one, plain)]
    if not patched:
        return plain, ""
    last = patched[-1]
    suspects = list(last.patches)
    known = tuple(name for one in patched for name in one.at_fault)
    if not suspects:
        return plain, _note(known, patched[0]) if known else ""
    # Each try is an export: with one patch the answer is known.
    guilty = suspects if len(suspects) == 1 else fewest(suspects, lambda some: _fails(log, last, some), _TRIES)
    found = tuple(dict.fromkeys((*known, *guilty)))
    note = _note(found, patched[0])
    if len(guilty) == len(suspects) or log.over:  # without them no patch acts: that is the plain export
        return plain, note
    attempt = last.attempt.without(guilty)
    # The search may have made this very attempt on its way.
    outcome = log.outcome_of(attempt) or log.attempt(attempt)
    return (outcome if isinstance(outcome, Proven) else plain), note


def _is_like(failure: Failure, plain: Proven) -> bool:
    """Whether an attempt differs from the plain one in its patches only."""
    made = failure.attempt
    # branches=True changes more than the patches: such a failure tells nothing about them.
    return made.exporter == plain.attempt.exporter and not made.plain and not made.branches


def _fails(log: AttemptLog, last: Failure, some: Sequence[str]) -> bool:
    """Whether the export fails or is wrong with these patches alone."""
    if log.over:
        return False
    attempt = last.attempt.without(name for name in last.patches if name not in some)
    return isinstance(log.outcome_of(attempt) or log.attempt(attempt), Failure)


def _note(names: Sequence[str], failure: Failure) -> str:
    what = "patches" if len(names) > 1 else "patch"
    return (
        f"the {what} {', '.join(map(repr, names))} made this export worse, and plain torch.onnx.export is right "
        f"({failure.error}): this report is what its author needs"
    )


# ------------------------------------------------------------------ what to type
_WHY = "onnxpatch.doctor(model, ...) names the smallest part at fault and tries what would help"
TITLE = "next: "
_SCRIPTED = (
    "onnxpatch.export(module, ...) with the nn.Module that was scripted: no patch acts in compiled code, and no part "
    "of it can be exported alone"
)

_QUANTIZED_DYNAMICALLY = (
    "export the float model, then onnxruntime.quantization.quantize_dynamic('m.onnx', 'int8.onnx'): layers that "
    "torch quantized dynamically have no ONNX form"
)
_OTHER_KERNELS = (
    "export(..., check=False), then onnxpatch.verify(..., compare='cosine'): the layers are quantized, and a runtime's "
    "own kernels of whole numbers round and saturate in another way"
)


def what_to_type(log: AttemptLog, exporters: Sequence[Exporter], bounds: Bounds | None) -> str:
    """The calls, the most promising first, as many as a line has room for.

    exporters: those that were tried; none where one attempt was asked for.
    """
    if compiled := _of_compiled_code(log.shared.request.model, getattr(log.error, "report", None) is not None):
        return compiled
    first, report = log.first, getattr(log.error, "report", None)
    if bounds is None and isinstance(report, Report) and report.right_within:
        narrow = first.call(log.shared.request, narrow=True)
        return _first_that_fit(f"{narrow} delivers the file for the sizes at which it is right")
    if not log.shared.several:
        if log.failed and log.failed[0].branch and not (first.branches or first.plain):
            return _first_that_fit(f"{replace(first, branches=True).call(log.shared.request)} exports both branches")
        return _first_that_fit("the same call without attempts='asked' goes on with other ways")
    if OUT_OF_TORCH in str(getattr(log.error, "args", ("",))[0]):
        return "write what NumPy computes there with torch's functions"
    return _first_that_fit(call) if (call := _by_another_way(log, exporters)) else _WHY


def _by_another_way(log: AttemptLog, exporters: Sequence[Exporter]) -> str:
    """The call with a later opset or the other exporter; "" where neither is a way out."""
    refused = next((one for one in log.failed if one.operator), log.failed[0])
    later = _by_a_later_opset(refused, log.shared.request)
    return later or _by_the_other(log.first, exporters, refused.operator)


def _by_a_later_opset(refused: Failure, asked: ExportRequest) -> str:
    """The call with a later opset, which has more operators; "" where that is no way out."""
    attempt, operator = refused.attempt, refused.operator
    if attempt.exporter != "trace" or refused.kind != "refused":
        return ""
    opset = next((one for one in torchscript_opsets(operator) if one > attempt.opset), 0) if operator else OPSET
    if opset <= attempt.opset:
        return ""
    what = f"that exporter has a form of {operator}" if operator else "more operators have a form"
    ending = ", the default" if opset == OPSET else ""
    return f"{replace(attempt, opset=opset).call(asked)}: {what} for opset {opset}{ending}"


def _by_the_other(first: Attempt, exporters: Sequence[Exporter], operator: str) -> str:
    """What the exporter that was not tried may do; "" where both were."""
    # No other exporter is a way out for torch.jit.script's errors.
    other = {"dynamo": "trace", "trace": "dynamo"}.get(first.exporter)
    if other is None or other in exporters:
        return ""
    known = by_dynamo(operator) if other == "dynamo" else torchscript_opsets(operator)
    if operator and known in ("none", []):
        return f"neither exporter has an ONNX form of {operator}: compute it outside of the model"
    if operator and known == "translated":
        return f"onnxpatch.export(model, ..., exporter='dynamo'): that exporter translates {operator}"
    return f"onnxpatch.export(model, ..., exporter='auto') goes on with the {other} exporter"


def _of_compiled_code(model: torch.nn.Module, wrong: bool) -> str:
    """What to do about a model whose code no exporter can read, or no runtime computes as torch; "" for others."""
    if isinstance(model, torch.jit.ScriptModule):
        return _SCRIPTED
    if wrong and _quantized_program(model):
        return _OTHER_KERNELS
    dynamic = any(".quantized.dynamic" in type(part).__module__ for part in model.modules())
    return _QUANTIZED_DYNAMICALLY if dynamic else ""


def _quantized_program(model: torch.nn.Module) -> bool:
    """Whether it is a program that torch has quantized (PT2E)."""
    programs = (part for part in model.modules() if isinstance(part, torch.fx.GraphModule))
    return any(str(node.target).startswith("quantized_decomposed") for one in programs for node in one.graph.nodes)


def _first_that_fit(call: str) -> str:
    """The call, and the doctor's where the line has room for it."""
    both = f"{call}; {_WHY}"
    return both if len(TITLE + both) <= WIDTH else call
