"""Finds the line that broke a part, from its failed export: tracebacks, warnings, fixed sizes, graph nodes.

A refusal is explained by what names a line most surely: the operator in the error, the traceback, an exception that the
model catches, a size that was fixed, exports of the first lines alone (`execution_trace.py`), and last the source.

In a graph that exports without an error and is wrong, either a line fixed something at the example (a size, a branch),
or an operator's translation differs from torch. A graph that is wrong at the example's own sizes speaks for an
operator; one that is right there and wrong at other sizes speaks for a line. The lines are compared by running eager
(`cause.likeliest`), the operators value by value (`_first_divergence`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType

import torch

from onnxpatch.decisions.ask import Site, lines_of_stack
from onnxpatch.diagnosis.lines import constructs as kinds
from onnxpatch.diagnosis.lines.cause import Cause, cause_at, cause_in_source, likeliest, own_line
from onnxpatch.diagnosis.lines.execution_trace import TraceFunction, tracing_with
from onnxpatch.diagnosis.lines.exporter_lines import (
    fixed_size_line,
    line_in_text,
    onnx_operator_in,
    operator_in,
    operator_lines,
    own_place,
)
from onnxpatch.diagnosis.parts.module_calls import Unit
from onnxpatch.diagnosis.trial import Subject, Trial
from onnxpatch.messages.user_code import is_user_file
from onnxpatch.onnxfile.runtime import intermediate_values
from onnxpatch.verification.comparison import compare
from onnxpatch.verification.eager import Eager
from onnxpatch.verification.findings import frozen_nodes
from onnxpatch.verification.probe import Probe

# The code of `module(...)`: an exception that leaves it was raised by a submodule.
# Private names of torch: under other names no line is found, and the search goes on by other means.
_CALLS = {
    getattr(getattr(torch.nn.Module, name, None), "__code__", None) for name in ("_wrapped_call_impl", "_call_impl")
} - {None}
BisectLines = Callable[[], list[Site]]


def cause_of(unit: Unit, subject: Subject, trial: Trial, exporter: str, bisect: BisectLines) -> Cause:
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
    return _cause_of_wrong_graph(unit, subject, trial, exporter)


def _of_loading(trial: Trial, bisect: BisectLines) -> Cause:
    """The runtime does not load the graph: its error names an ONNX operator, but no line."""
    cause = cause_at(bisect(), kinds.NO_TRANSLATION, known=True)
    return replace(cause, construct=kinds.NOT_LOADED, operator=onnx_operator_in(trial.error))


def _of_refusal(unit: Unit, subject: Subject, trial: Trial, exporter: str, bisect: BisectLines) -> Cause:
    operator = operator_in(trial)
    if operator:
        return _of_operator(unit, subject, trial, exporter, operator)
    places = own_line(trial.places, unit) or line_in_text(trial.error)
    if trial.caught:
        return cause_at(places, kinds.CAUGHT, known=True)
    if places:
        return cause_at(places, construct_of_error(trial.kind, trial.error, exporter), known=exporter == "script")
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
    kind = construct_of_error(trial.kind, trial.error, exporter)
    places = bisect()  # late, since it takes several exports
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


_TOLERANCE = 1e-3  # relative, as in `onnxpatch.verify`
_LINE = re.compile(r'File "([^"]+)", line (\d+)')


def _cause_of_wrong_graph(unit: Unit, subject: Subject, trial: Trial, exporter: str) -> Cause:
    """The likeliest cause of a wrong graph; without a line where nothing points at one."""
    # The file's inputs do not match those that were given: default arguments have become inputs.
    if trial.kind == "InputError" and "without outputs" not in trial.error:
        return Cause(kinds.DEFAULTS)
    probe, example = _wrong_probe(subject, trial), subject.probes[0]
    differing = functools.partial(_operator, trial, probe if exporter == "dynamo" else None)
    if probe is None or _sizes(probe) == _sizes(example):
        # Wrong at the example's own sizes: no size was fixed wrongly, so the operators are compared first.
        found = differing() or likeliest(unit, subject, trial, False)
        return found or _unexplained(unit, trial, kinds.UNKNOWN, sizes=False)
    found = likeliest(unit, subject, trial, True)
    if found is None and not trial.untranslated:
        found = differing() or _fixed_node(trial, example, probe)
    return found or _unexplained(unit, trial, kinds.FIXED_SIZE, sizes=True)


def _unexplained(unit: Unit, trial: Trial, kind: str, sizes: bool) -> Cause:
    return Cause(kind) if trial.untranslated else cause_in_source(unit, kind, sizes=sizes)


def _wrong_probe(subject: Subject, trial: Trial) -> Probe | None:
    pairs = zip(trial.checks, subject.probes, strict=False)
    return next((probe for check, probe in pairs if not check.ok), None)


def _sizes(probe: Probe) -> list[tuple[int, ...]]:
    return [tuple(v.shape) for v in probe.values if isinstance(v, torch.Tensor)]


def _operator(trial: Trial, probe: Probe | None) -> Cause | None:
    """The first operator whose values differ; None where none does, or without a probe."""
    node = _first_divergence(trial, probe) if probe is not None else None
    if node is None:
        return None
    name = getattr(node.target, "name", None)
    operator = str(name() if callable(name) else node.target)
    return replace(
        cause_at(_lines(node), kinds.WRONG_TRANSLATION), construct=kinds.WRONG_TRANSLATION, operator=operator
    )


def _fixed_node(trial: Trial, example: Probe, probe: Probe) -> Cause | None:
    """The user's line whose node keeps a size of its output while its input's size changes; None for none."""
    if trial.graph is None:
        return None
    for found in frozen_nodes(trial.graph, trial.feed, example, probe):
        match = re.match(r"(.+?\.py):(\d+)", found.source)
        if match and is_user_file(match[1]):
            return cause_at([Site(match[1], int(match[2]))], kinds.FIXED_SIZE)
    return None


def _first_divergence(trial: Trial, probe: Probe) -> torch.fx.Node | None:
    """The first node of the exported program whose value differs in the graph; None where none does."""
    program = getattr(trial.program, "exported_program", None)
    if program is None or trial.graph is None:
        return None
    found = intermediate_values(trial.graph, trial.feed.of(probe.values))
    kept = _KeepValues(program.module())
    try:
        with torch.no_grad():
            kept.run(*[v for v in probe.values if isinstance(v, torch.Tensor)])
    except Exception:  # an assert on sizes: the program was not exported for this probe
        return None
    # In the order of the program: what comes after a wrong value is wrong because of it.
    for node, value in kept.values.items():
        # The translation may have joined it with others, so that the graph has no value of that name.
        other = found.get(node.name)
        if other is not None and not compare(node.name, value, other, _TOLERANCE).ok:
            return node
    return None


class _KeepValues(torch.fx.Interpreter):
    """Runs a program and keeps every tensor that its nodes return."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__(module)
        self.values: dict[torch.fx.Node, torch.Tensor] = {}

    def run_node(self, n: torch.fx.Node) -> object:
        value: object = super().run_node(n)
        # Cloned: a later node may write into the same storage.
        if n.op == "call_function" and isinstance(value, torch.Tensor):
            self.values[n] = value.detach().clone()
        return value


def _lines(node: torch.fx.Node) -> list[Site]:
    """The user's lines that call it, innermost first."""
    frames = [Site(file, int(line)) for file, line in _LINE.findall(node.meta.get("stack_trace") or "")]
    users = [place for place in frames if is_user_file(place.file)]
    return list(reversed(users or frames))
