"""Finds the cause of a graph that exports without an error and is wrong.

Either a line fixed something at the example (a size, a branch), or an operator's translation differs from torch. A
graph that is wrong at the example's own sizes speaks for an operator; one that is right there and wrong at other sizes
speaks for a line. The lines are compared by running eager (`suspect_lines.py`), the operators value by value
(`py`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from onnxpatch.decisions.place import Site
from onnxpatch.diagnosis.lines import constructs as kinds
from onnxpatch.diagnosis.lines.cause import Cause, cause_at, cause_in_source
from onnxpatch.diagnosis.lines.suspect_lines import likeliest
from onnxpatch.diagnosis.parts.module_calls import Unit
from onnxpatch.diagnosis.trials.trial import Subject, Trial
from onnxpatch.messages.user_code import is_user_file
from onnxpatch.onnxfile.intermediate_values import intermediate_values
from onnxpatch.verification.comparison import compare
from onnxpatch.verification.findings import frozen_nodes
from onnxpatch.verification.probe import Probe

_LINE = re.compile(r'File "([^"]+)", line (\d+)')


def cause_of_wrong_graph(unit: Unit, subject: Subject, trial: Trial, exporter: str) -> Cause:
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
    found = first_divergence(trial, probe) if probe is not None else None
    if found is None:
        return None
    cause = cause_at(found.places, kinds.WRONG_TRANSLATION)
    return replace(cause, construct=kinds.WRONG_TRANSLATION, operator=found.operator)


def _fixed_node(trial: Trial, example: Probe, probe: Probe) -> Cause | None:
    """The user's line whose node keeps a size of its output while its input's size changes; None for none."""
    if trial.graph is None:
        return None
    for found in frozen_nodes(trial.graph, trial.feed, example, probe):
        match = re.match(r"(.+?\.py):(\d+)", found.source)
        if match and is_user_file(match[1]):
            return cause_at([Site(match[1], int(match[2]))], kinds.FIXED_SIZE)
    return None


@dataclass(frozen=True)
class _Divergence:
    """The operator that differs, as `aten::name.overload`, and the user's lines that call it, innermost first."""

    operator: str
    places: tuple[Site, ...]


def first_divergence(trial: Trial, probe: Probe, tolerance: float = 1e-3) -> _Divergence | None:
    """The first node of the exported program whose value differs in the graph; None where none does.

    tolerance: relative, as in `onnxpatch.verify`.
    """
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
    for node in kept.order:
        # In the order of the program: what comes after a wrong value is wrong because of it.
        if _differs(kept.values[node.name], found, node.name, tolerance):
            return _Divergence(_operator_name(node), tuple(_lines(node)))
    return None


class _KeepValues(torch.fx.Interpreter):
    """Runs a program and keeps every tensor that its nodes return."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__(module)
        self.order: list[torch.fx.Node] = []
        self.values: dict[str, torch.Tensor] = {}

    def run_node(self, n: torch.fx.Node) -> object:
        value: object = super().run_node(n)
        # Cloned: a later node may write into the same storage.
        if n.op == "call_function" and isinstance(value, torch.Tensor) and n.name not in self.values:
            self.order.append(n)
            self.values[n.name] = value.detach().clone()
        return value


def _differs(value: torch.Tensor, found: Mapping[str, np.ndarray], name: str, tolerance: float) -> bool:
    other = found.get(name)
    # The translation may have joined it with others, so that the graph has no value of that name.
    if other is None:
        return False
    return not compare(name, value, other, tolerance).ok


def _operator_name(node: torch.fx.Node) -> str:
    name = getattr(node.target, "name", None)
    return str(name() if callable(name) else node.target)


def _lines(node: torch.fx.Node) -> list[Site]:
    frames = [Site(file, int(line)) for file, line in _LINE.findall(node.meta.get("stack_trace") or "")]
    users = [place for place in frames if is_user_file(place.file)]
    return list(reversed(users or frames))
