"""What a user types next where no attempt is right: one line, the most promising call first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from onnxpatch.attempts.attempt import Attempt
from onnxpatch.attempts.attempt_log import AttemptLog
from onnxpatch.attempts.bounded_files import Bounds
from onnxpatch.attempts.failure import Failure
from onnxpatch.diagnosis.operator_support import torchscript_opsets, translated_by_dynamo
from onnxpatch.exporters.exported import OUT_OF_TORCH
from onnxpatch.exporters.request import OPSET, ExportRequest
from onnxpatch.messages.text import WIDTH
from onnxpatch.results.report import Report
from onnxpatch.settings import Exporter

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
    # The trace exporter is no way out for torch.jit.script's errors, nor for itself.
    if first.exporter == "dynamo" and "trace" not in exporters:
        if operator and not torchscript_opsets(operator):
            return f"neither exporter has an ONNX form of {operator}: compute it outside of the model"
        return "onnxpatch.export(model, ..., exporter='auto') goes on with the trace exporter"
    if first.exporter != "trace" or "dynamo" in exporters:
        return ""
    if translated_by_dynamo(operator):
        return f"onnxpatch.export(model, ..., exporter='dynamo'): that exporter translates {operator}"
    return "" if operator else "onnxpatch.export(model, ..., exporter='auto') tries the dynamo exporter as well"


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
