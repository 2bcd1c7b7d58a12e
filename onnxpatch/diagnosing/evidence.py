"""From a failing trial to the line that broke it: tracebacks, warnings, settled sizes, graph nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from onnxpatch.checking.frozen import frozen_nodes
from onnxpatch.checking.probe import Probe
from onnxpatch.diagnosing import constructs as kinds
from onnxpatch.diagnosing.calls import Unit
from onnxpatch.diagnosing.constructs import Construct, at_line, code_at, in_function
from onnxpatch.diagnosing.diverge import first_divergence
from onnxpatch.diagnosing.settled import belongs, settled
from onnxpatch.diagnosing.trial import Place, Subject, Trial


@dataclass(frozen=True)
class Cause:
    """What broke it: a kind of construct, its line, an operator."""

    construct: str = kinds.UNKNOWN
    file: str = ""
    line: int = 0
    code: str = ""
    operator: str = ""

    @property
    def source(self) -> str:
        return f"{self.file}:{self.line}" if self.file else ""


def cause_of(unit: Unit, subject: Subject, trial: Trial, exporter: str) -> Cause:
    """The likeliest cause; a Cause without a line where nothing points at one."""
    if trial.status == "slow":
        return _at(_own(trial.places, unit), kinds.UNKNOWN)
    if trial.status == "refused":
        return _of_refusal(unit, subject, trial, exporter)
    return _of_silence(unit, subject, trial, exporter)


# ------------------------------------------------------------------ refused
_OPERATORS = (
    r"OpOverload\(op='(?P<ns>\w+)\.(?P<op>\w+)'(?:, overload='(?P<overload>\w+)')?",
    r"(?:operator|op) '?(?P<ns>\w+)::(?P<op>\w+)'?",
    r"ONNX export of (?:operator )?(?P<op>\w+)",
    r"torch\.ops\.(?P<ns>\w+)\.(?P<op>\w+)\.",
)
_TRACED_LINE = re.compile(r"(?P<file>[^\s()]+\.py)\((?P<line>\d+)\): (?P<function>\S+)")
_PYTHON_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


def _of_refusal(unit: Unit, subject: Subject, trial: Trial, exporter: str) -> Cause:
    operator = _operator(trial.error) if _is_about_operator(trial) else ""
    places = [*_own(trial.places, unit)]
    if not places:
        places = [*_in_text(trial.error), *(_operator_places(subject, operator, exporter) if operator else ())]
    if operator:
        cause = _at(places, kinds.NO_TRANSLATION)
        kind = kinds.COMPLEX if _is_complex(trial.error, operator) else kinds.NO_TRANSLATION
        return replace(cause, construct=kind, operator=operator)
    if exporter == "script" and not places:
        return _scanned(unit, kinds.NOT_SCRIPTABLE)
    if not places:
        places = settled(unit, trial)
        found = _at(places, kinds.FIXED_SIZE) if places else _scanned(unit, _kind_of_error(trial, exporter))
        return found
    return _at(places, _kind_of_error(trial, exporter), first=exporter == "script")


def _is_about_operator(trial: Trial) -> bool:
    named = trial.kind in ("UnsupportedOperatorError", "DispatchError", "GraphConstructionError", "SymbolicValueError")
    return named or bool(re.search(r"No ONNX function|Error when translating|Unsupported: ONNX export", trial.error))


def _operator(text: str) -> str:
    for pattern in _OPERATORS:
        found = re.search(pattern, text)
        if found:
            parts = found.groupdict()
            overload = parts.get("overload") or ""
            name = f"{parts.get('ns') or 'aten'}::{parts['op']}"
            return name if overload in ("", "default") else f"{name}.{overload}"
    return ""


def _is_complex(error: str, operator: str) -> bool:
    name = operator.partition("::")[2]
    told = "complex" in error.lower() and "real-valued" not in error
    return told or re.search(r"complex|fft|stft|polar|view_as_real", name) is not None


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


def _in_text(error: str) -> list[Place]:
    for pattern in (_TRACED_LINE, _PYTHON_LINE):
        found = [Place(m["file"], int(m["line"])) for m in pattern.finditer(error)]
        users = [place for place in found if "/torch/" not in place.file and not place.file.startswith("torch")]
        if users:
            return users[:1]
    return []


# ------------------------------------------------------------------ where an operator stands
def _operator_places(subject: Subject, operator: str, exporter: str) -> list[Place]:
    name = operator.partition("::")[2].partition(".")[0].strip("_")
    try:
        lines = _fx_lines(subject, name) if exporter == "dynamo" else _jit_lines(subject, name)
    except Exception:  # only the line is lost
        return []
    return [place for place in lines if "/torch/" not in place.file][:1] or lines[:1]


def _fx_lines(subject: Subject, name: str) -> list[Place]:
    from onnxpatch.checking.capture import capture

    nodes = capture(subject.model, subject.inputs, subject.specs).graph.nodes
    traces = [node.meta.get("stack_trace", "") for node in nodes if name in str(node.target).replace("_", "_")]
    return [place for trace in traces for place in reversed(_frames(trace))]


def _frames(trace: str) -> list[Place]:
    return [Place(m["file"], int(m["line"])) for m in _PYTHON_LINE.finditer(trace)]


def _jit_lines(subject: Subject, name: str) -> list[Place]:
    args, _ = subject.inputs.rebuild(subject.inputs.values())
    with torch.no_grad():
        traced = torch.jit.trace(subject.model, args, check_trace=False)
    graph = traced.inlined_graph
    return [
        Place(m["file"], int(m["line"]))
        for node in graph.nodes()
        if name in node.kind()
        for m in _TRACED_LINE.finditer(node.sourceRange())
    ]


# ------------------------------------------------------------------ silent
def _of_silence(unit: Unit, subject: Subject, trial: Trial, exporter: str) -> Cause:
    probe = _wrong_probe(subject, trial)
    moved = probe is not None and _sizes(probe) != _sizes(subject.probes[0])
    if trial.kind == "InputError" and "without outputs" not in trial.error:
        return Cause(kinds.DEFAULTS)
    if exporter == "dynamo" and probe is not None:
        lines = settled(unit, trial, probe) if moved else []
        if lines:
            return _at(lines, kinds.FIXED_SIZE)
        found = first_divergence(trial, probe)
        if found is not None:
            return replace(_at(found.places, kinds.WRONG_TRANSLATION), construct=kinds.WRONG_TRANSLATION,
                           operator=found.operator)  # fmt: skip
    warned = _warned(unit, trial, moved)
    if warned is not None:
        return warned
    frozen = _frozen(trial, subject.probes[0], probe) if moved and probe is not None else None
    return frozen or _scanned(unit, kinds.FIXED_SIZE if moved else kinds.UNKNOWN, sizes=moved)


def _wrong_probe(subject: Subject, trial: Trial) -> Probe | None:
    pairs = zip(trial.checks, subject.probes, strict=False)
    return next((probe for check, probe in pairs if not check.ok), None)


def _sizes(probe: Probe) -> list[Any]:
    return [tuple(v.shape) for v in probe.values if isinstance(v, torch.Tensor)]


_MESSAGES = {
    "Python boolean": kinds.BRANCH_TENSOR,
    "Iterating over": kinds.LOOP_ROWS,
    "Using len": kinds.NUMBER_SIZE,
    "Python integer": kinds.NUMBER_TENSOR,
    "Python float": kinds.NUMBER_TENSOR,
    "Python number": kinds.NUMBER_TENSOR,
    "Python index": kinds.NUMBER_TENSOR,
    "Python list": kinds.NUMBER_TENSOR,
    "NumPy": kinds.NUMBER_TENSOR,
    "registered as constants": kinds.BUILT,
}


def _warned(unit: Unit, trial: Trial, moved: bool) -> Cause | None:
    """The trace's own warning in the unit's code: about sizes where another size is wrong, else about data."""
    found = [_at([place], _message_kind(text)) for place, text in trial.warned if belongs(place, unit)]
    if not found:
        return None
    about_sizes = {kinds.BRANCH_SIZE, kinds.NUMBER_SIZE, kinds.LOOP_SIZE, kinds.LOOP_ROWS, kinds.BUILT}
    return min(found, key=lambda cause: (_harmless(cause), (cause.construct in about_sizes) is not moved))


def _harmless(cause: Cause) -> bool:
    return cause.code.startswith(("assert", "torch._check", "raise"))


def _message_kind(text: str) -> str:
    return next((kind for part, kind in _MESSAGES.items() if part in text), kinds.UNKNOWN)


def _frozen(trial: Trial, example: Probe, probe: Probe) -> Cause | None:
    if trial.graph is None:
        return None
    for found in frozen_nodes(trial.graph, trial.names, trial.order, example, probe):
        match = re.match(r"(.+?\.py):(\d+)", found.source)
        if match and "/torch/" not in match[1]:
            return _at([Place(match[1], int(match[2]))], kinds.FIXED_SIZE)
    return None


# ------------------------------------------------------------------ places and lines
def _own(places: Sequence[Place], unit: Unit) -> list[Place]:
    """The unit's own line of a traceback: the last of its frames; a helper's below it only where it has none."""
    mine = [i for i, place in enumerate(places) if place.module is unit.module]
    if mine:
        return [places[mine[-1]]]
    return list(places[-1:])


def _at(places: Iterable[Place], otherwise: str, first: bool = False) -> Cause:
    for place in places:
        seen = None if first else at_line(place.file, place.line)
        kind = seen.kind if seen else otherwise
        return Cause(kind, place.file, place.line, code_at(place.file, place.line))
    return Cause(otherwise)


def _scanned(unit: Unit, otherwise: str, sizes: bool | None = None) -> Cause:
    """Read off the source alone: the first suspicious construct of the unit's own method."""
    found = in_function(getattr(type(unit.module), unit.method, None))
    about = {kinds.BRANCH_SIZE, kinds.NUMBER_SIZE, kinds.LOOP_SIZE, kinds.LOOP_ROWS}
    if sizes is not None:
        found = sorted(found, key=lambda c: (c.kind in about) is not sizes)
    return _from(found[0]) if found and "/torch/" not in found[0].file else Cause(otherwise)


def _from(construct: Construct) -> Cause:
    return Cause(construct.kind, construct.file, construct.line, construct.code)
