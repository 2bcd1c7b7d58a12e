"""Which way a part's own Python goes at one input and at another: the lines at which two eager runs part.

A graph that was made at one input has that input's way through the code in it. At another input the line at which eager
turns off is where the graph goes wrong; a branch that is taken the same way at both is harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch

from onnxpatch.diagnosis.lines.statements import Statement
from onnxpatch.diagnosis.lines.trace_function import tracing_with
from onnxpatch.diagnosis.parts.module_calls import Unit
from onnxpatch.diagnosis.stack_lines import Place, owner
from onnxpatch.messages.user_code import is_user_frame, package_of
from onnxpatch.verification.eager import Eager

_MOST = 200_000  # steps of the interpreter that are followed in one run
_ALONG = 8  # numbers of a list or tuple that are kept

Key = tuple[str, int]


@dataclass
class _Step:
    """One instruction of the part's own code, on its line: the instructions that came after it, run by run."""

    file: str
    line: int
    after: list[int] = field(default_factory=list)


class ExecutionTrace:
    """A trace function: the way through a module's own methods, and helpers that these call, in one eager run.

    numbers: by statement, what the Python numbers that it assigned were, in the order of its runs.
    """

    def __init__(self, unit: Unit, watched: Sequence[Statement] = ()) -> None:
        self.steps: dict[tuple[CodeType, int], _Step] = {}
        self.numbers: dict[Key, list[str]] = {}
        self.complete = True
        self._unit, self._count = unit, 0
        self._package = type(unit.module).__module__.partition(".")[0]
        self._watched = {(one.file, line): one for one in watched for line in range(one.start, one.end + 1)}

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event != "call" or not self.complete or not self._own(frame):
            return None
        frame.f_trace_opcodes = True
        before, line = _Step("", 0), frame.f_lineno

        def follow(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal before, line
            if event == "opcode":
                before.after.append(frame.f_lasti)
                before = self._step(frame)
            else:
                self._note(frame, line)
                line = frame.f_lineno
            return follow if self.complete else None

        return follow

    def _step(self, frame: FrameType) -> _Step:
        self._count += 1
        self.complete = self._count < _MOST
        key = frame.f_code, frame.f_lasti
        if key not in self.steps:
            self.steps[key] = _Step(frame.f_code.co_filename, frame.f_lineno)
        return self.steps[key]

    def _own(self, frame: FrameType) -> bool:
        """Whether a frame is a method of the module, or helps one: no other module's method stands between."""
        if not is_user_frame(frame) or package_of(frame) != self._package:
            return False
        above: FrameType | None = frame
        while above is not None:
            held = owner(above)
            if isinstance(held, torch.nn.Module):
                return held is self._unit.module
            above = above.f_back
        return False

    def _note(self, frame: FrameType, line: int) -> None:
        """After a watched statement has run, keep what it made."""
        one = self._watched.get((frame.f_code.co_filename, line))
        if one is None or one.start <= frame.f_lineno <= one.end:
            return
        values = [frame.f_locals[name] for name in one.names if name in frame.f_locals]
        if values and all(_is_number(value) for value in values):
            self.numbers.setdefault((one.file, one.start), []).append(repr(values))


def _is_number(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return len(value) <= _ALONG and all(_is_number(one) for one in value)
    return isinstance(value, bool | int | float) or type(value).__module__ == "numpy"


def trace_execution(
    unit: Unit, eager: Eager, values: Sequence[Any], watched: Sequence[Statement] = ()
) -> ExecutionTrace | None:
    """The way at one input; None where it is too long to follow."""
    way = ExecutionTrace(unit, watched)
    with tracing_with(way):
        eager.ask(values)
    return way if way.complete else None


def diverging_lines(one: ExecutionTrace, other: ExecutionTrace) -> list[Place]:
    """Lines from which the two ways go on differently, in the order of the first.

    What is run more often without going elsewhere, the body of a loop say, does not part.
    """
    pairs = ((step, other.steps[key]) for key, step in one.steps.items() if key in other.steps)
    return [Place(a.file, a.line) for a, b in pairs if any(x != y for x, y in zip(a.after, b.after, strict=False))]


def other_numbers(one: ExecutionTrace, other: ExecutionTrace) -> set[Key]:
    """Statements whose Python numbers differ between two ways."""
    shared = one.numbers.keys() & other.numbers.keys()
    return {key for key in shared if one.numbers[key] != other.numbers[key]}
