"""Finds which operator an exporter's error names, and the line of the model that calls it.

error   No ONNX function found for <OpOverload(op='aten.special_i0', overload='default')>
name    aten::special_i0
line    the first node of the captured program (dynamo) or traced graph that calls it
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

from onnxpatch._torch.function_modes import TraceErrorRecovery
from onnxpatch._torch.one_export import one_export
from onnxpatch.decisions.place import Site, model_lines
from onnxpatch.diagnosis.trials.trial import Subject, Trial
from onnxpatch.patching.model_state import Snapshot
from onnxpatch.process import filtered

# Wordings of the exporters in the versions of torch that are supported. Of an unknown one only the operator's name is
# lost: the cause is then looked for in the lines.
_OPERATORS = (
    r"OpOverload\(op='(?P<ns>\w+)\.(?P<op>\w+)'(?:, overload='(?P<overload>\w+)')?",
    r"(?:operator|op) '?(?P<ns>\w+)::(?P<op>\w+)'?",
    r"ONNX export of (?:operator )?(?P<op>\w+)",
    r"torch\.ops\.(?P<ns>\w+)\.(?P<op>\w+)\.",
    r"[Oo]ccurred when translating (?P<op>\w+)",
    r"[Cc]onversion of (?P<op>\w+) not implemented",
)
_NAMED = ("UnsupportedOperatorError", "DispatchError", "GraphConstructionError", "SymbolicValueError")
_ABOUT_AN_OPERATOR = re.compile(
    r"No ONNX function|Error when translating|Unsupported: ONNX export|ccurred when translating"
    r"|onversion of \w+ not implemented"
)
_TRACED_LINE = re.compile(r"(?P<file>[^\s()]+\.py)\((?P<line>\d+)\): (?P<function>\S+)")
_PYTHON_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


def operator_in(trial: Trial) -> str:
    """The operator that a trial's error is about, as `aten::name.overload`; "" where it is about none."""
    return operator_named(trial.kind, trial.error)


def operator_named(kind: str, error: str) -> str:
    """The operator that an exporter's error is about; "" for none. kind: the class of the error; error: its text."""
    if kind not in _NAMED and not _ABOUT_AN_OPERATOR.search(error):
        return ""
    for pattern in _OPERATORS:
        found = re.search(pattern, error)
        if found:
            parts = found.groupdict()
            overload = parts.get("overload") or ""
            name = f"{parts.get('ns') or 'aten'}::{parts['op']}"
            return name if overload in ("", "default") else f"{name}.{overload}"
    return ""


def onnx_operator_in(error: str) -> str:
    """The ONNX operator that a runtime does not load, as `onnx::Name`; "" where its error names none."""
    found = re.search(r"of operator \((\w+)\)|implementation for (\w+)\(|Node \([^)]*\) Op \((\w+)\)", error)
    return f"onnx::{next(name for name in found.groups() if name)}" if found else ""


def line_in_text(error: str) -> list[Site]:
    """The first of the model's own lines in an exporter's text, alone; [] for none."""
    for pattern in (_TRACED_LINE, _PYTHON_LINE):
        found = [Site(m["file"], int(m["line"])) for m in pattern.finditer(error)]
        users = [place for place in model_lines(found) if not place.file.startswith("torch")]
        if users:
            return users[:1]
    return []


def operator_lines(subject: Subject, operator: str, exporter: str, trial: Trial) -> list[Site]:
    """The first line of the model that calls an operator, alone; [] where none is found."""
    name = _bare_name(operator)
    try:
        found = _fx_lines(subject, operator, trial) if exporter == "dynamo" else _jit_lines(subject, name)
        return next(found, [])
    except Exception:  # the part may not trace by itself: only the line is lost
        return []


def _bare_name(operator: str) -> str:
    """`roll` of `aten::roll.default`."""
    # torch.export writes `relu_` as `relu`: its programs change nothing in place.
    return operator.partition("::")[2].partition(".")[0].strip("_").lower()


def operator_nodes(program: torch.export.ExportedProgram, operator: str) -> Iterator[torch.fx.Node]:
    """The nodes of an ExportedProgram that call an operator."""
    return (node for node in program.graph.nodes if _bare_name(operator) in str(node.target))


def _fx_lines(subject: Subject, operator: str, trial: Trial) -> Iterator[list[Site]]:
    from onnxpatch.exporters.dynamo import capture

    state = Snapshot(subject.model)
    try:
        program = trial.captured or capture(subject.model, subject.inputs, subject.specs)
    finally:
        state.restore()
    for node in operator_nodes(program, operator):
        trace = node.meta.get("stack_trace") or ""
        # A traceback has the innermost frame last.
        users = model_lines(reversed([Site(m["file"], int(m["line"])) for m in _PYTHON_LINE.finditer(trace)]))
        if users:
            yield users[:1]


def _jit_lines(subject: Subject, name: str) -> Iterator[list[Site]]:
    args, _ = subject.inputs.rebuild(subject.inputs.values())
    with one_export(), filtered("ignore"), torch.no_grad(), TraceErrorRecovery():
        # check_trace would trace once more.
        traced = torch.jit.trace(subject.model, args, check_trace=False)
    for node in traced.inlined_graph.nodes():
        if name in node.kind().lower():
            found = [Site(m["file"], int(m["line"])) for m in _TRACED_LINE.finditer(node.sourceRange())]
            users = model_lines(found)
            if users:
                yield users[:1]
