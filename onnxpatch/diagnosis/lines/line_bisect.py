"""Bisects a forward's lines for the first one that does not export, where the error names no line.

A forward can be cut short: a trace function raises before line k, and the local tensors there become the outputs. What
exports when it is cut before line k, and not before line k + 1, is at fault with line k:

    h = self.linear(x)      cut before line 2: outputs x, h        exports
    h = self.odd(h)         cut before line 3: outputs x, h        refused   -> this line
    return h + x

A forward of 100 lines takes seven exports.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from types import CodeType, FrameType

import torch

from onnxpatch.decisions.place import Site
from onnxpatch.diagnosis.lines.execution_trace import TraceFunction, tracing_with
from onnxpatch.diagnosis.parts.isolated_module import IsolatedModule
from onnxpatch.diagnosis.parts.module_calls import Unit
from onnxpatch.diagnosis.trial import Subject, Trial
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.verification.eager import Eager

_MOST_LINES = 400  # that one call may run; a long loop is not bisected
_FEWEST_LINES = 2


class _Cut(BaseException):
    """Ends a forward before its last line. Not an Exception: the model's own `except` must not catch it."""


class _LineCutter:
    """A trace function that records the lines of one method's first call, and raises before the line number `stop`.

    lines: line numbers in the order they ran. tensors: the local tensors where it raised.
    """

    def __init__(self, code: CodeType, stop: int | None = None) -> None:
        self.code, self.stop = code, stop
        self.lines: list[int] = []
        self.tensors: list[torch.Tensor] = []
        self._frame: FrameType | None = None

    def __call__(self, frame: FrameType, event: str, arg: object) -> TraceFunction | None:
        # Only the first call of the method: a second one, of the same module, would begin to count anew.
        if frame.f_code is not self.code or self._frame not in (None, frame):
            return None
        self._frame = frame
        return self._line

    def _line(self, frame: FrameType, event: str, arg: object) -> TraceFunction:
        if event == "line":
            if len(self.lines) == self.stop:
                self.tensors = [v for v in frame.f_locals.values() if isinstance(v, torch.Tensor)]
                raise _Cut
            self.lines.append(frame.f_lineno)
        return self._line


class _CutForward(torch.nn.Module):
    """A part that runs up to one of its lines, and returns the tensors in its local names there."""

    def __init__(self, part: IsolatedModule, code: CodeType, stop: int) -> None:
        super().__init__()
        # A copy that shares the module: the flag below must not stay on the part.
        self.part = copy.copy(part)
        self.part.direct = True  # no module's __call__ lies between: torch.jit.trace does not survive a raise there
        self._code, self._stop = code, stop

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        lines = _LineCutter(self._code, self._stop)
        try:
            with tracing_with(lines):
                return IsolatedModule.forward(self.part, *tensors)
        except _Cut:
            # A tensor under two names is one output.
            return tuple(dict.fromkeys(lines.tensors))


def breaking_line(
    unit: Unit, subject: Subject, trial: Trial, attempt: Callable[[Subject], Trial], left: Callable[[], float]
) -> list[Site]:
    """The first line of a part's own method with which the export fails as `trial` did; [] where none can be named.

    attempt: exports a subject. left: seconds of the budget.
    """
    method = getattr(type(unit.module), unit.method, None)
    code = getattr(method, "__code__", None)
    if not isinstance(subject.model, IsolatedModule) or code is None:
        return []
    lines = _executed_lines(subject, code)
    if not _FEWEST_LINES <= len(lines) <= _MOST_LINES:
        return []
    good, bad = 0, len(lines)  # cut before line `good` it exports; cut before line `bad`, or not at all, it fails
    while bad - good > 1 and left() > 0:
        middle = (good + bad) // 2
        tried = attempt(_cut_subject(subject, code, middle))
        good, bad = (good, middle) if _fails_alike(tried, trial) else (middle, bad)
    return [Site(code.co_filename, lines[bad - 1], unit.method, module=unit.module)] if bad - good == 1 else []


def _executed_lines(subject: Subject, code: CodeType) -> Sequence[int]:
    cutter = _LineCutter(code)
    eager = Eager(subject.model, subject.inputs, subject.flatten)
    with tracing_with(cutter):
        eager.ask(subject.probes[0].values)
    return cutter.lines


def _cut_subject(subject: Subject, code: CodeType, stop: int) -> Subject:
    assert isinstance(subject.model, IsolatedModule)
    model = _CutForward(subject.model, code, stop)
    inputs = Inputs(model, tuple(subject.probes[0].values))
    # No probes: whether it exports is all that is asked.
    return Subject(model, inputs, subject.specs, [])


def _fails_alike(tried: Trial, whole: Trial) -> bool:
    """Whether two trials failed for the same reason, as far as their errors tell."""
    return (tried.status, tried.kind, first_words(tried.error)) == (whole.status, whole.kind, first_words(whole.error))


def first_words(error: str) -> list[str]:
    """The first six words of an error, without what differs between parts: numbers, names of values, expressions."""
    return re.findall(r"(?<![\w'\"%.])[A-Za-z]{3,}(?![\w(.\[])", error)[:6]
