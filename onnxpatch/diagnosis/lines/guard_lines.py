"""Conditions on sizes that torch.export relied on, and the lines of a part's own code that asked for them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import sympy
import torch

from onnxpatch._torch.size_conditions import compiled_condition, size_conditions
from onnxpatch.diagnosis.parts.module_calls import Unit
from onnxpatch.diagnosis.stack_lines import Place
from onnxpatch.diagnosis.trials.attempt import Stack, Subject, Trial
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.messages.user_code import is_user_file
from onnxpatch.verification.guards import holds
from onnxpatch.verification.probe import Probe


def fixed_size_line(unit: Unit, trial: Trial) -> list[Place]:
    """The line of the unit at which a size was fixed, the likeliest alone."""
    mine = [(condition, own_place(stack, unit)) for condition, stack in trial.size_conditions]
    fixed = [p for c, p in mine if p and _equals_number(c) and c.lhs.is_Symbol]  # a size itself, no expression in it
    equal = [p for c, p in mine if p and _equals_number(c)]
    plain = [p for c, p in mine if p and not isinstance(c, sympy.Ne)]
    return (fixed or equal or plain)[:1]


def _equals_number(condition: Any) -> bool:
    return isinstance(condition, sympy.Eq) and bool(condition.rhs.is_Integer)


def conditions_broken_at(unit: Unit, trial: Trial, subject: Subject) -> Iterator[tuple[Place, set[int] | None]]:
    """Lines of the unit with a condition that does not hold at some probes, and the numbers of these probes.

    None: an equation that cannot be told at any, in symbols of which another equation has made one.
    """
    symbols = [_symbols(trial, probe, subject) for probe in subject.probes]
    for condition, stack in trial.size_conditions:
        place = own_place(stack, unit)
        if place is None:
            continue
        verdicts = [_holds(condition, values) if values else None for values in symbols]
        broken = {i for i, holds in enumerate(verdicts) if holds is False}
        if broken:
            yield place, broken
        elif isinstance(condition, sympy.Eq) and all(holds is None for holds in verdicts):
            yield place, None


def broken_conditions(trial: Trial, subject: Subject) -> list[Stack]:
    """Where conditions were settled that fail at a probe at which the graph is wrong, and hold where it is right.

    The one that most wrong probes break comes first. Of an export that did not end no graph is known: there, any probe
    will do, and the conditions come in the order in which they were settled.
    """
    symbols = [_symbols(trial, probe, subject) for probe in subject.probes]
    right = [check.ok for check in trial.checks] or [False] * len(symbols)
    found: list[tuple[int, Stack]] = []
    for condition, stack in trial.size_conditions:
        broken = [
            ok for ok, values in zip(right, symbols, strict=False) if values and _holds(condition, values) is False
        ]
        if broken and not any(broken):
            found.append((-len(broken) if trial.checks else 0, stack))
    return [stack for _, stack in sorted(found, key=lambda one: one[0])]


def _symbols(trial: Trial, probe: Probe, subject: Subject) -> dict[str, int]:
    """What the symbols of the input sizes are at a probe."""
    program = getattr(trial.program, "exported_program", None) or trial.captured
    tensors = [v for v in probe.values if isinstance(v, torch.Tensor)]
    if program is not None:
        places, _ = size_conditions(program)
        return {str(s): int(tensors[i].shape[axis]) for (i, axis), s in places.items() if i < len(tensors)}
    given = [
        value.shape[axis]
        for value, spec in zip(probe.values, subject.specs, strict=True)
        if isinstance(value, torch.Tensor)
        for axis in sorted(axis for axis, one in spec.items() if shapes.is_dynamic(one))
    ]
    return dict(zip(trial.symbols, given, strict=True)) if len(given) == len(trial.symbols) else {}


def _holds(condition: Any, sizes: dict[str, int]) -> bool | None:
    """Whether a condition holds at these sizes, by the names of the symbols; None where one of them is not known."""
    compiled, names = _compiled(condition)
    return holds(compiled, [sizes[name] for name in names]) if sizes.keys() >= set(names) else None


@functools.lru_cache(maxsize=4096)
def _compiled(condition: Any) -> tuple[Callable[..., Any], tuple[str, ...]]:
    symbols = sorted(getattr(condition, "free_symbols", ()), key=str)
    return compiled_condition(condition, symbols), tuple(map(str, symbols))


def own_place(stack: Stack, unit: Unit) -> Place | None:
    """The unit's own line on a stack: of its methods, or of a function in its files that helps them.

    Where no frame is the unit's, a line in its files stands for it: code of a part that could not be tried alone.
    """
    files = _files(type(unit.module))  # type: ignore[arg-type]
    for i, place in enumerate(stack):
        if place.module is unit.module:
            helping = [p for p in stack[:i] if not isinstance(p.module, torch.nn.Module) and p.file in files]
            return helping[0] if helping and not _through_another(stack[:i]) else place
    return next((place for place in stack if place.file in files), None)


def _through_another(stack: Stack) -> bool:
    return any(isinstance(place.module, torch.nn.Module) for place in stack)


@functools.cache
def _files(cls: Any) -> frozenset[str]:
    """The source files of a class and of those it inherits from, torch's own left out."""
    found = set()
    for one in inspect.getmro(cls):
        try:
            found.add(inspect.getsourcefile(one) or "")
        except (OSError, TypeError):
            continue
    return frozenset(file for file in found if file and is_user_file(file))
