"""Finds the cause of a graph that exports without an error and is wrong.

Either a line fixed something at the example (a size, a branch), or an operator's translation differs from torch. A
graph that is wrong at the example's own sizes speaks for an operator; one that is right there and wrong at other sizes
speaks for a line. The lines are compared by running eager (`suspect_lines.py`), the operators value by value
(`first_divergence.py`).
"""

from __future__ import annotations

import re
from dataclasses import replace

import torch

from onnxpatch.decisions.place import Site
from onnxpatch.diagnosis.lines import constructs as kinds
from onnxpatch.diagnosis.lines.cause import Cause, cause_at, cause_in_source
from onnxpatch.diagnosis.lines.first_divergence import first_divergence
from onnxpatch.diagnosis.lines.suspect_lines import likeliest
from onnxpatch.diagnosis.parts.module_calls import Unit
from onnxpatch.diagnosis.trials.trial import Subject, Trial
from onnxpatch.messages.user_code import is_user_file
from onnxpatch.verification.findings import frozen_nodes
from onnxpatch.verification.probe import Probe


def cause_of_wrong_graph(unit: Unit, subject: Subject, trial: Trial, exporter: str) -> Cause:
    """The likeliest cause of a wrong graph; without a line where nothing points at one."""
    # The file's inputs do not match those that were given: default arguments have become inputs.
    if trial.kind == "InputError" and "without outputs" not in trial.error:
        return Cause(kinds.DEFAULTS)
    probe = _wrong_probe(subject, trial)
    other_sizes = probe is not None and _sizes(probe) != _sizes(subject.probes[0])
    # Wrong at the example's own sizes: no size was fixed wrongly, so the operators are compared first.
    if exporter == "dynamo" and probe is not None and not other_sizes:
        differing = _operator(trial, probe)
        if differing is not None:
            return differing
    found = likeliest(unit, subject, trial, other_sizes)
    if found is None and trial.untranslated:
        return Cause(kinds.FIXED_SIZE if other_sizes else kinds.UNKNOWN)
    if found is None and exporter == "dynamo" and probe is not None and other_sizes:
        found = _operator(trial, probe)
    if found is None and probe is not None and other_sizes:
        found = _fixed_node(trial, subject.probes[0], probe)
    return found or cause_in_source(unit, kinds.FIXED_SIZE if other_sizes else kinds.UNKNOWN, sizes=other_sizes)


def _wrong_probe(subject: Subject, trial: Trial) -> Probe | None:
    pairs = zip(trial.checks, subject.probes, strict=False)
    return next((probe for check, probe in pairs if not check.ok), None)


def _sizes(probe: Probe) -> list[tuple[int, ...]]:
    return [tuple(v.shape) for v in probe.values if isinstance(v, torch.Tensor)]


def _operator(trial: Trial, probe: Probe) -> Cause | None:
    """The first operator whose values differ; None where none does."""
    found = first_divergence(trial, probe)
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
