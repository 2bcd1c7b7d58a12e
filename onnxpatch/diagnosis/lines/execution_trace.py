"""Traces which Python instructions a module runs on one input, to find the lines at which two inputs run differently.

A graph exported at one input contains the branches that this input took. Where eager takes another branch on another
input, the graph is wrong there; a branch that both take the same way does no harm.

    if x.shape[1] > 8:      input [1, 4]   the instruction after the `if` is that of `y = x`
        y = x[:, :8]        input [1, 9]   ... that of `y = x[:, :8]`
    else:                   changed_statements: the `if`
        y = x
    n = x.shape[1] // 2     and this, of [2] and [4], if it is watched

A trace function can also cut a forward short: it raises before line k, and the local tensors there become the outputs.
Where an error names no line, what exports when it is cut before line k, and not before line k + 1, is at fault with
line k. A forward of 100 lines takes seven exports:

    h = self.linear(x)      cut before line 2: outputs x, h        exports
    h = self.odd(h)         cut before line 3: outputs x, h        refused   -> this line
    return h + x
"""

from __future__ import annotations

import contextlib
import copy
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType

import torch

from onnxpatch.decisions.ask import Site, owner
from onnxpatch.diagnosis.lines.constructs import Statement, statement_at
from onnxpatch.diagnosis.parts.isolated_module import IsolatedModule
from onnxpatch.diagnosis.parts.module_calls import Unit
from onnxpatch.diagnosis.trial import Subject, Trial
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.messages.user_code import is_user_frame, package_of
from onnxpatch.process import undone
from onnxpatch.verification.eager import Eager

_MOST_STEPS = 200_000  # instructions that are traced in one run
_MOST_NUMBERS = 8  # entries of a list or tuple of numbers that are kept

Key = tuple[str, int]


@dataclass
class _Step:
    """One instruction of the module's code. after: offsets of the instructions that ran next, one for each run."""

    file: str
    line: int
    after: list[int] = field(default_factory=list)


class _ExecutionTrace:
    """A trace function that records one eager run of a module's methods and of the functions that help them.

    steps: by code and offset, the instructions that ran. numbers: by (file, first line) of a watched statement, the
    Python numbers that it assigned, run by run. complete: False where the run was too long to record.
    """

    def __init__(self, unit: Unit, watched: Sequence[Statement] = ()) -> None:
        self.steps: dict[tuple[CodeType, int], _Step] = {}
        self.numbers: dict[Key, list[str]] = {}
        self.complete = True
        self._unit, self._count = unit, 0
        self._package = type(unit.module).__module__.partition(".")[0]
        self._watched = {(one.file, line): one for one in watched for line in range(one.start, one.end + 1)}

    def __call__(self, frame: FrameType, event: str, arg: object) -> TraceFunction | None:
        if event != "call" or not self.complete or not self._is_own(frame):
            return None
        # By instruction, not by line: `a if b else c` and `a or b` branch within a line.
        frame.f_trace_opcodes = True
        before, line = _Step("", 0), frame.f_lineno

        def follow(frame: FrameType, event: str, arg: object) -> TraceFunction | None:
            nonlocal before, line
            if event == "opcode":
                before.after.append(frame.f_lasti)
                before = self._step(frame)
            else:
                # A line event comes before its line runs, so the names of the line before have their values now.
                self._keep_numbers(frame, line)
                line = frame.f_lineno
            return follow if self.complete else None

        return follow

    def first_run(self) -> dict[Key, int]:
        """How early each line runs."""
        # Backwards: of several steps on a line the first one stays.
        return {(step.file, step.line): at for at, step in reversed(list(enumerate(self.steps.values())))}

    def _step(self, frame: FrameType) -> _Step:
        self._count += 1
        self.complete = self._count < _MOST_STEPS
        key = frame.f_code, frame.f_lasti
        if key not in self.steps:
            self.steps[key] = _Step(frame.f_code.co_filename, frame.f_lineno)
        return self.steps[key]

    def _is_own(self, frame: FrameType) -> bool:
        """Whether a frame is a method of the module, or a function called from one with no other module between."""
        # Libraries that the model calls are left out: their branches are none of its lines.
        if not is_user_frame(frame) or package_of(frame) != self._package:
            return False
        above: FrameType | None = frame
        while above is not None:
            module = owner(above)
            if isinstance(module, torch.nn.Module):
                # The first method on the way out: a module called from this one has lines of its own.
                return module is self._unit.module
            above = above.f_back
        return False

    def _keep_numbers(self, frame: FrameType, line: int) -> None:
        """After a watched statement has run, keep the numbers that it assigned."""
        one = self._watched.get((frame.f_code.co_filename, line))
        if one is None or one.start <= frame.f_lineno <= one.end:
            return
        values = [frame.f_locals[name] for name in one.names if name in frame.f_locals]
        if values and all(_is_number(value) for value in values):
            self.numbers.setdefault((one.file, one.start), []).append(repr(values))


def _is_number(value: object) -> bool:
    if isinstance(value, tuple | list):
        return len(value) <= _MOST_NUMBERS and all(_is_number(one) for one in value)
    return isinstance(value, bool | int | float) or type(value).__module__ == "numpy"


def trace_execution(
    unit: Unit, eager: Eager, values: Sequence[object], watched: Sequence[Statement] = ()
) -> _ExecutionTrace | None:
    """Run a module in eager and trace it; None where the run is too long to record.

    values: one for each leaf of the inputs. watched: statements whose numbers are kept.
    """
    trace = _ExecutionTrace(unit, watched)
    with tracing_with(trace):
        eager.ask(values)
    return trace if trace.complete else None


def changed_statements(one: _ExecutionTrace, other: _ExecutionTrace) -> Iterator[Statement]:
    """Statements after which two runs go on differently, in the order of the first run; then those with other numbers.

    A line that runs more often without going elsewhere, as in the body of a loop, does not count.
    """
    pairs = ((step, other.steps[key]) for key, step in one.steps.items() if key in other.steps)
    lines = [(a.file, a.line) for a, b in pairs if any(x != y for x, y in zip(a.after, b.after, strict=False))]
    shared = one.numbers.keys() & other.numbers.keys()
    lines += sorted(key for key in shared if one.numbers[key] != other.numbers[key])
    yield from filter(None, (statement_at(file, line) for file, line in lines))


TraceFunction = Callable[[FrameType, str, object], "TraceFunction | None"]
"""Called with (frame, event, argument); returns the function for the lines of that frame, or None."""


@contextlib.contextmanager
def tracing_with(follow: TraceFunction) -> Iterator[None]:
    """Inside the block, `follow` is the trace function of this thread. Debuggers and coverage get theirs back."""
    before = sys.gettrace()
    with undone(lambda: sys.settrace(before)):
        sys.settrace(follow)
        yield


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


def first_failing_line(
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
