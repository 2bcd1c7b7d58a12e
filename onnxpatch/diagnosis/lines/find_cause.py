"""Finds the line that broke a part, from its failed export: tracebacks, warnings, fixed sizes, graph nodes.

A refusal is explained by what names a line most surely: the operator in the error, the traceback, an exception that the
model catches, a size that was fixed, exports of the first lines alone (`line_bisect.py`), and last the source. A graph
that is wrong without an error goes to `silently_wrong.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType

import torch

from onnxpatch.decisions.place import Site, lines_of_stack
from onnxpatch.diagnosis.lines import constructs as kinds
from onnxpatch.diagnosis.lines.cause import Cause, cause_at, cause_in_source, own_line
from onnxpatch.diagnosis.lines.guard_lines import fixed_size_line, own_place
from onnxpatch.diagnosis.lines.operator_lines import line_in_text, onnx_operator_in, operator_in, operator_lines
from onnxpatch.diagnosis.lines.silently_wrong import cause_of_wrong_graph
from onnxpatch.diagnosis.lines.trace_function import TraceFunction, tracing_with
from onnxpatch.diagnosis.parts.module_calls import Unit
from onnxpatch.diagnosis.trials.trial import CaughtError, Subject, Trial
from onnxpatch.verification.eager import Eager

# The code of `module(...)`: an exception that leaves it was raised by a submodule.
# Private names of torch: under other names no line is found, and the search goes on by other means.
_CALLS = {
    getattr(getattr(torch.nn.Module, name, None), "__code__", None) for name in ("_wrapped_call_impl", "_call_impl")
} - {None}
BisectLines = Callable[[], list[Site]]


def cause_of(unit: Unit, subject: Subject, trial: Trial, exporter: str, bisect: BisectLines | None = None) -> Cause:
    """The likeliest cause of a failed trial; without a line where nothing points at one.

    bisect: finds the line by further exports, where the exporter's error names none.
    """
    if trial.status == "slow":
        # Where the time limit struck is where the time went, most likely.
        place = own_place(tuple(reversed(trial.places)), unit)
        return cause_at([place] if place else [], kinds.UNKNOWN)
    if trial.status == "refused":
        return _of_refusal(unit, subject, trial, exporter, bisect)
    if trial.graph is None and trial.kind == "RunError":
        return _of_loading(trial, bisect)
    return cause_of_wrong_graph(unit, subject, trial, exporter)


def _of_loading(trial: Trial, bisect: BisectLines | None) -> Cause:
    """The runtime does not load the graph: its error names an ONNX operator, but no line."""
    cause = cause_at(bisect() if bisect else [], kinds.NO_TRANSLATION, known=True)
    return replace(cause, construct=kinds.NOT_LOADED, operator=onnx_operator_in(trial.error))


def _of_refusal(unit: Unit, subject: Subject, trial: Trial, exporter: str, bisect: BisectLines | None) -> Cause:
    operator = operator_in(trial)
    if operator:
        return _of_operator(unit, subject, trial, exporter, operator)
    places = own_line(trial.places, unit) or line_in_text(trial.error)
    if trial.kind == CaughtError.__name__:
        return cause_at(places, kinds.CAUGHT, known=True)
    if places:
        return cause_at(places, _kind_of_error(trial, exporter), known=exporter == "script")
    if exporter == "script":
        return cause_in_source(unit, kinds.NOT_SCRIPTABLE)
    # The exporter's error is about something else where the model catches one; eager shows it.
    places = list(caught_exception_lines(subject))
    if places:
        return cause_at(places, kinds.CAUGHT, known=True)
    # Where torch.export went through, the refusal is the translation's, and no size is at fault.
    places = fixed_size_line(unit, trial) if trial.captured is None else []
    if places:
        return cause_at(places, kinds.FIXED_SIZE)
    kind = _kind_of_error(trial, exporter)
    # Late, since it takes several exports.
    places = bisect() if bisect else []
    return cause_at(places, kind) if places else cause_in_source(unit, kind)


def _of_operator(unit: Unit, subject: Subject, trial: Trial, exporter: str, operator: str) -> Cause:
    places = (
        own_line(trial.places, unit) or operator_lines(subject, operator, exporter, trial) or line_in_text(trial.error)
    )
    kind = kinds.COMPLEX if _is_complex(trial.error, operator) else kinds.NO_TRANSLATION
    return replace(cause_at(places, kind), construct=kind, operator=operator)


def _is_complex(error: str, operator: str) -> bool:
    name = operator.partition("::")[2]
    complex_named = "complex" in error.lower() and "real-valued" not in error
    return complex_named or re.search(r"complex|fft|stft|polar|view_as_real", name) is not None


def _kind_of_error(trial: Trial, exporter: str) -> str:
    return construct_of_error(trial.kind, trial.error, exporter)


def construct_of_error(kind: str, error: str, exporter: str) -> str:
    """The kind of code that an exporter's error speaks of. kind: the class of the error; error: its text."""
    text = f"{kind} {error}"
    if exporter == "script":
        return kinds.NOT_SCRIPTABLE
    if re.search(r"data-dependent|unbacked", text, re.IGNORECASE):
        # torch.export calls numbers out of data u0, u1, ...: `Eq(u0, 1)` is a branch on one.
        return kinds.BRANCH_TENSOR if "Eq(u" in text else kinds.DATA_SIZE
    if "complex" in text.lower():
        return kinds.COMPLEX
    if re.search(r"specialized|static shape|[Cc]onstraints violated|conflicts between", text):
        return kinds.FIXED_SIZE
    return kinds.UNKNOWN


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
