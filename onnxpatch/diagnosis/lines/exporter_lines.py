"""The lines that an exporter itself points at: by an operator in its error, or by a condition on sizes that it fixed.

    error   No ONNX function found for <OpOverload(op='aten.special_i0', overload='default')>
    name    aten::special_i0
    line    the first node of the captured program (dynamo) or traced graph that calls it

When Python asks whether `s0 > 8`, torch.export answers for the example and goes on: the program is right only where the
answer is the same. Each such condition was recorded with its stack, so that a probe at which it is false names a line:

    condition  s0 > 8, at model.py:12        probe [1, 4] has s0 = 4: false -> line 12 is fixed to its other branch
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator

import sympy
import torch

from onnxpatch._torch.function_modes import trace_error_recovery
from onnxpatch._torch.guards import compiled_condition, size_conditions
from onnxpatch._torch.one_export import one_export
from onnxpatch.decisions.ask import Site, model_lines
from onnxpatch.diagnosis.parts.module_calls import Unit
from onnxpatch.diagnosis.trial import Condition, Stack, Subject, Trial
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.messages.user_code import is_user_file
from onnxpatch.patching.forward_state import Snapshot
from onnxpatch.process import filtered
from onnxpatch.verification.probe import Probe

# Wordings of the exporters in the versions of torch that are supported. Of an unknown one only the operator's name is
# lost: the cause is then looked for in the lines.
_OPERATORS = (
    r"OpOverload\(op='(?P<ns>\w+)\.(?P<op>\w+)'(?:, overload='(?P<overload>\w+)')?",
    r"(?:operator|op) '?(?P<ns>\w+)::(?P<op>\w+)'?",
    r"unrecognized namespace (?P<ns>\w+)::(?P<op>\w+)",
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
    try:
        found = _fx_lines(subject, operator, trial) if exporter == "dynamo" else _jit_lines(subject, operator)
        return next(filter(None, map(model_lines, found)), [])[:1]
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
    """Of each node that calls the operator, the lines on its stack, innermost first."""
    from onnxpatch.exporters.dynamo import capture

    state = Snapshot(subject.model)
    try:
        program = trial.captured or capture(subject.model, subject.inputs, subject.specs)
    finally:
        state.restore()
    for node in operator_nodes(program, operator):
        trace = node.meta.get("stack_trace") or ""
        # A traceback has the innermost frame last.
        yield [Site(m["file"], int(m["line"])) for m in _PYTHON_LINE.finditer(trace)][::-1]


def _jit_lines(subject: Subject, operator: str) -> Iterator[list[Site]]:
    """The same of a traced graph."""
    args, _ = subject.inputs.rebuild(subject.inputs.values())
    with one_export(), filtered("ignore"), torch.no_grad(), trace_error_recovery():
        # check_trace would trace once more.
        traced = torch.jit.trace(subject.model, args, check_trace=False)
    for node in traced.inlined_graph.nodes():
        if _bare_name(operator) in node.kind().lower():
            yield [Site(m["file"], int(m["line"])) for m in _TRACED_LINE.finditer(node.sourceRange())]


def fixed_size_line(unit: Unit, trial: Trial) -> list[Site]:
    """The unit's line that most likely fixed a size, alone; [] for none."""
    own = [(condition, own_place(stack, unit)) for condition, stack in trial.size_conditions]
    fixed = [p for c, p in own if p and _equals_number(c) and c.lhs.is_Symbol]  # a size itself, no expression in it
    equal = [p for c, p in own if p and _equals_number(c)]
    plain = [p for c, p in own if p and not isinstance(c, sympy.Ne)]
    return (fixed or equal or plain)[:1]


def _equals_number(condition: Condition) -> bool:
    return isinstance(condition, sympy.Eq) and bool(condition.rhs.is_Integer)


def conditions_broken_at(unit: Unit, trial: Trial, subject: Subject) -> Iterator[tuple[Site, set[int] | None]]:
    """Lines of the unit with a condition that is false at some probes, and the numbers of these probes.

    None in place of the numbers: an equation that no probe can be tested for, because another equation has replaced
    its symbols.
    """
    symbols = [_symbols(trial, probe, subject) for probe in subject.probes]
    for condition, stack in trial.size_conditions:
        place = own_place(stack, unit)
        if place is None:
            continue
        verdicts = [_holds(condition, values) if values else None for values in symbols]
        # None is unknown, which is no proof against a line.
        broken = {i for i, holds in enumerate(verdicts) if holds is False}
        if broken:
            yield place, broken
        elif isinstance(condition, sympy.Eq) and all(holds is None for holds in verdicts):
            yield place, None


def broken_conditions(trial: Trial, subject: Subject) -> list[Stack]:
    """Stacks of the conditions that are false only at probes where the graph is wrong; most such probes first.

    Of an export that did not end, no graph is known: there any probe counts, and the order is that of the export.
    """
    symbols = [_symbols(trial, probe, subject) for probe in subject.probes]
    right = [check.ok for check in trial.checks] or [False] * len(symbols)
    found: list[tuple[int, Stack]] = []
    for condition, stack in trial.size_conditions:
        broken = [
            ok for ok, values in zip(right, symbols, strict=False) if values and _holds(condition, values) is False
        ]
        # A condition that is false where the graph is right did no harm.
        if broken and not any(broken):
            found.append((-len(broken) if trial.checks else 0, stack))
    return [stack for _, stack in sorted(found, key=lambda one: one[0])]


def _symbols(trial: Trial, probe: Probe, subject: Subject) -> dict[str, int]:
    """The values of the symbols at a probe, by name; {} where they are not known."""
    program = getattr(trial.program, "exported_program", None) or trial.captured
    tensors = [v for v in probe.values if isinstance(v, torch.Tensor)]
    if program is not None:
        places, _ = size_conditions(program)
        return {str(s): int(tensors[i].shape[axis]) for (i, axis), s in places.items() if i < len(tensors)}
    # No program: the symbols are known by their order alone, which is that of the dynamic axes.
    sizes = [
        value.shape[axis]
        for value, spec in zip(probe.values, subject.specs, strict=True)
        if isinstance(value, torch.Tensor)
        for axis in sorted(axis for axis, one in spec.items() if shapes.is_dynamic(one))
    ]
    return dict(zip(trial.symbols, sizes, strict=True)) if len(sizes) == len(trial.symbols) else {}


def _holds(condition: Condition, sizes: dict[str, int]) -> bool | None:
    """Whether a condition is true at sizes by symbol name; None where a symbol is not known."""
    compiled, names = _compiled(condition)
    return compiled([[sizes[name] for name in names]])[0] if sizes.keys() >= set(names) else None


# A condition is evaluated at every probe, in several places, and compiling it takes far longer.
@functools.lru_cache(maxsize=4096)
def _compiled(condition: Condition) -> tuple[Callable[..., list[bool | None]], tuple[str, ...]]:
    symbols = sorted(getattr(condition, "free_symbols", ()), key=str)
    return compiled_condition(condition, symbols), tuple(map(str, symbols))


def own_place(stack: Stack, unit: Unit) -> Site | None:
    """The unit's own line on a stack, innermost first: in its methods, or in a function of its files that they call.

    Where no frame is the unit's, any line in its files counts: a part of it may not have been exportable alone.
    """
    files = _source_files(type(unit.module))  # type: ignore[arg-type]  # mypy: a class is not Hashable
    for i, place in enumerate(stack):
        if place.module is unit.module:
            inner = stack[:i]
            through_another = any(isinstance(one.module, torch.nn.Module) for one in inner)
            return place if through_another else next((one for one in inner if one.file in files), place)
    return next((place for place in stack if place.file in files), None)


@functools.cache
def _source_files(cls: type) -> frozenset[str]:
    """The source files of a class and of those it inherits from, torch's own left out."""
    found = set()
    for base in inspect.getmro(cls):
        try:
            found.add(inspect.getsourcefile(base) or "")
        except (OSError, TypeError):
            continue
    return frozenset(file for file in found if file and is_user_file(file))
