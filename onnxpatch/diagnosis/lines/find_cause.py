"""From a failing trial to the line that broke it: tracebacks, warnings, sizes that were fixed, graph nodes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from onnxpatch.diagnosis.lines import constructs as kinds
from onnxpatch.diagnosis.lines.caught_exceptions import caught_exception_lines
from onnxpatch.diagnosis.lines.cause import Cause, at, own, scanned
from onnxpatch.diagnosis.lines.guard_lines import fixed_size_line, own_place
from onnxpatch.diagnosis.lines.operator_lines import in_text, onnx_operator_in, operator_in, operator_lines
from onnxpatch.diagnosis.lines.silently_wrong import cause_of_wrong_graph
from onnxpatch.diagnosis.parts.module_calls import Unit
from onnxpatch.diagnosis.stack_lines import Place
from onnxpatch.diagnosis.trials.attempt import CaughtError, Subject, Trial

Lines = Callable[[], list[Place]]


def cause_of(unit: Unit, subject: Subject, trial: Trial, exporter: str, shortened: Lines | None = None) -> Cause:
    """The likeliest cause; a Cause without a line where nothing points at one.

    shortened: finds the line by further exports, where the exporter's words name none.
    """
    if trial.status == "slow":
        place = own_place(tuple(reversed(trial.places)), unit)
        return at([place] if place else [], kinds.UNKNOWN)
    if trial.status == "refused":
        return _of_refusal(unit, subject, trial, exporter, shortened)
    if trial.graph is None and trial.kind == "RunError":
        return _of_loading(trial, shortened)
    return cause_of_wrong_graph(unit, subject, trial, exporter)


def _of_loading(trial: Trial, shortened: Lines | None) -> Cause:
    """The runtime does not take the graph: its words name an ONNX operator, of the line nothing is kept."""
    cause = at(shortened() if shortened else [], kinds.NO_TRANSLATION, first=True)
    return replace(cause, construct=kinds.NOT_LOADED, operator=onnx_operator_in(trial.error))


def _of_refusal(unit: Unit, subject: Subject, trial: Trial, exporter: str, shortened: Lines | None) -> Cause:
    operator = operator_in(trial)
    if operator:
        return _of_operator(unit, subject, trial, exporter, operator)
    places = own(trial.places, unit) or in_text(trial.error)
    if trial.kind == CaughtError.__name__:
        return at(places, kinds.CAUGHT, first=True)
    if places:
        return at(places, _kind_of_error(trial, exporter), first=exporter == "script")
    if exporter == "script":
        return scanned(unit, kinds.NOT_SCRIPTABLE)
    places = list(caught_exception_lines(subject))
    if places:
        return at(places, kinds.CAUGHT, first=True)
    # Where torch.export went through, the refusal is the translation's, and no size is at fault.
    places = fixed_size_line(unit, trial) if trial.captured is None else []
    if places:
        return at(places, kinds.FIXED_SIZE)
    kind = _kind_of_error(trial, exporter)
    places = shortened() if shortened else []
    return at(places, kind) if places else scanned(unit, kind)


def _of_operator(unit: Unit, subject: Subject, trial: Trial, exporter: str, operator: str) -> Cause:
    places = own(trial.places, unit) or operator_lines(subject, operator, exporter, trial) or in_text(trial.error)
    kind = kinds.COMPLEX if _is_complex(trial.error, operator) else kinds.NO_TRANSLATION
    return replace(at(places, kind), construct=kind, operator=operator)


def _is_complex(error: str, operator: str) -> bool:
    name = operator.partition("::")[2]
    complex_named = "complex" in error.lower() and "real-valued" not in error
    return complex_named or re.search(r"complex|fft|stft|polar|view_as_real", name) is not None


def _kind_of_error(trial: Trial, exporter: str) -> str:
    text = f"{trial.kind} {trial.error}"
    if exporter == "script":
        return kinds.NOT_SCRIPTABLE
    if re.search(r"data-dependent|unbacked", text, re.IGNORECASE):
        return kinds.BRANCH_TENSOR if "Eq(u" in text else kinds.DATA_SIZE
    if "complex" in text.lower():
        return kinds.COMPLEX
    if re.search(r"specialized|static shape|[Cc]onstraints violated|conflicts between", text):
        return kinds.FIXED_SIZE
    return kinds.UNKNOWN
