"""A refusal that names no line, by the exporter or by the runtime that loads the graph: the same part, stopped before
line after line, until it goes through."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import Any

import torch

from onnxpatch.diagnosis.lines.trace_function import tracing_with
from onnxpatch.diagnosis.parts.isolated_module import Alone
from onnxpatch.diagnosis.parts.module_calls import Unit
from onnxpatch.diagnosis.stack_lines import Place
from onnxpatch.diagnosis.trials.attempt import Subject, Trial
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.verification.eager import Eager

_MOST = 400  # lines that one call may run through
_FEW = 2


class _Enough(BaseException):
    """Not an Exception: the model's own `except` must not catch it."""


class _Lines:
    """A trace function that sees the lines of one method's first call; before line number `stop` it raises."""

    def __init__(self, code: CodeType, stop: int | None = None) -> None:
        self.code, self.stop = code, stop
        self.lines: list[int] = []
        self.tensors: list[torch.Tensor] = []
        self._frame: FrameType | None = None

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code is not self.code or self._frame not in (None, frame):
            return None
        self._frame = frame
        return self._line

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            if len(self.lines) == self.stop:
                self.tensors = [v for v in frame.f_locals.values() if isinstance(v, torch.Tensor)]
                raise _Enough
            self.lines.append(frame.f_lineno)
        return self._line


class _Stopped(torch.nn.Module):
    """A part up to one of its lines; out go the tensors that its local names hold there."""

    def __init__(self, part: Alone, code: CodeType, stop: int) -> None:
        super().__init__()
        self.part = copy.copy(part)
        self.part.direct = True  # no module's __call__ lies between: torch.jit.trace does not survive a raise there
        self._code, self._stop = code, stop

    def forward(self, *carried: torch.Tensor) -> tuple[torch.Tensor, ...]:
        lines = _Lines(self._code, self._stop)
        try:
            with tracing_with(lines):
                return Alone.forward(self.part, *carried)
        except _Enough:
            return tuple(dict.fromkeys(lines.tensors))


def breaking_line(
    unit: Unit, subject: Subject, trial: Trial, attempt: Callable[[Subject], Trial], left: Callable[[], float]
) -> list[Place]:
    """The first line of a part's own method with which the export is refused; [] where there is none to name."""
    method = getattr(type(unit.module), unit.method, None)
    code = getattr(method, "__code__", None)
    if not isinstance(subject.model, Alone) or code is None:
        return []
    lines = _run_through(subject, code)
    if not _FEW <= len(lines) <= _MOST:
        return []
    good, bad = 0, len(lines)  # stopped before line `bad`, or not at all, it is refused
    while bad - good > 1 and left() > 0:
        middle = (good + bad) // 2
        tried = attempt(_shortened(subject, code, middle))
        good, bad = (good, middle) if _same(tried, trial) else (middle, bad)
    return [Place(code.co_filename, lines[bad - 1], unit.method, unit.module)] if bad - good == 1 else []


def _run_through(subject: Subject, code: CodeType) -> Sequence[int]:
    seen = _Lines(code)
    eager = Eager(subject.model, subject.inputs, subject.flatten)
    with tracing_with(seen):
        eager.ask(subject.probes[0].values)
    return seen.lines


def _shortened(subject: Subject, code: CodeType, stop: int) -> Subject:
    assert isinstance(subject.model, Alone)
    model = _Stopped(subject.model, code, stop)
    inputs = Inputs(model, tuple(subject.probes[0].values))
    return Subject(model, inputs, subject.specs, [])


def _same(tried: Trial, whole: Trial) -> bool:
    """Refused for the same reason, as far as words tell."""
    return (tried.status, tried.kind, wording(tried.error)) == (whole.status, whole.kind, wording(whole.error))


def wording(error: str) -> list[str]:
    """The first words of an error: numbers, names of values and expressions differ from one part to another."""
    return re.findall(r"(?<![\w'\"%.])[A-Za-z]{3,}(?![\w(.\[])", error)[:6]
