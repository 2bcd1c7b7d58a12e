"""Finds the line whose call of a module raises, where the model catches the exception and goes on.

    try:
        return self.inner(x)          this line
    except RuntimeError: ...

torch.export refuses such a model with an error about something else, so the eager model is run and watched.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType

import torch

from onnxpatch.decisions.place import Site, lines_of_stack
from onnxpatch.diagnosis.lines.trace_function import TraceFunction, tracing_with
from onnxpatch.diagnosis.trials.trial import Subject
from onnxpatch.verification.eager import Eager

# The code of `module(...)`: an exception that leaves it was raised by a submodule.
# Private names of torch: under other names no line is found, and the search goes on by other means.
_CALLS = {
    getattr(getattr(torch.nn.Module, name, None), "__code__", None) for name in ("_wrapped_call_impl", "_call_impl")
} - {None}


def caught_exception_lines(subject: Subject) -> Sequence[Site]:
    """The last such line, alone; [] where the model catches nothing on the example."""
    seen: list[Sequence[Site]] = []

    def follow(frame: FrameType, event: str, arg: object) -> TraceFunction:
        if event == "exception":
            seen.append(lines_of_stack(frame.f_back)[:1])
        return follow

    def enter(frame: FrameType, event: str, arg: object) -> TraceFunction | None:
        return follow if event == "call" and frame.f_code in _CALLS else None

    eager = Eager(subject.model, subject.inputs, subject.flatten)
    with tracing_with(enter):
        answer = eager.ask(subject.probes[0].values)
    # Eager gave an answer, so what was raised has been caught.
    return seen[-1] if seen and answer.accepted else []
