"""What to type where no attempt made a right file: the calls that may make one, or that say why not."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from onnxpatch.attempts.attempt_log import AttemptLog
from onnxpatch.attempts.narrowed import Bounds
from onnxpatch.results.report import Report
from onnxpatch.settings import Exporter

_WHY = "onnxpatch.doctor(model, ...) names the smallest part at fault and tries cures"

_SCRIPTED = (
    "onnxpatch.export(module, ...) with the nn.Module that was scripted: no patch acts in compiled code, and no part "
    "of it can be exported alone"
)


def what_to_type(log: AttemptLog, exporters: Sequence[Exporter], bounds: Bounds | None) -> str:
    """The calls, the most promising first. exporters: those that were tried; none where one attempt was asked for."""
    if isinstance(log.shared.request.model, torch.jit.ScriptModule):
        return _SCRIPTED
    first, report = log.first, getattr(log.error, "report", None)
    if bounds is None and isinstance(report, Report) and report.right_within:
        narrow = first.call(log.shared.request, narrow=True)
        return f"{narrow} delivers the file with the sizes at which it is right; {_WHY}"
    if not log.shared.several:
        return f"{first.call(log.shared.request)} without attempts='asked' tries other ways; {_WHY}"
    # The trace exporter is no way out for torch.jit.script's errors, nor for itself.
    if first.exporter == "dynamo" and "trace" not in exporters:
        return f"onnxpatch.export(model, ..., exporter='auto') goes on with the trace exporter; {_WHY}"
    return _WHY
