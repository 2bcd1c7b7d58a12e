"""From a graph that is wrong without a word to the line that froze something, or the operator that differs."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import torch

from onnxpatch.diagnosis.lines import constructs as kinds
from onnxpatch.diagnosis.lines.cause import Cause, at, scanned
from onnxpatch.diagnosis.lines.first_divergence import first_divergence
from onnxpatch.diagnosis.lines.suspect_lines import likeliest
from onnxpatch.diagnosis.parts.module_calls import Unit
from onnxpatch.diagnosis.stack_lines import Place
from onnxpatch.diagnosis.trials.attempt import Subject, Trial
from onnxpatch.messages.user_code import is_user_file
from onnxpatch.verification.findings import frozen_nodes
from onnxpatch.verification.probe import Probe


def cause_of_wrong_graph(unit: Unit, subject: Subject, trial: Trial, exporter: str) -> Cause:
    """The likeliest cause of a wrong graph; a Cause without a line where nothing points at one."""
    if trial.kind == "InputError" and "without outputs" not in trial.error:
        return Cause(kinds.DEFAULTS)
    probe = _wrong_probe(subject, trial)
    moved = probe is not None and _sizes(probe) != _sizes(subject.probes[0])
    if exporter == "dynamo" and probe is not None and not moved:
        differing = _operator(trial, probe)
        if differing is not None:
            return differing
    found = likeliest(unit, subject, trial, moved)
    if found is None and trial.halfway:
        return Cause(kinds.FIXED_SIZE if moved else kinds.UNKNOWN)
    if found is None and exporter == "dynamo" and probe is not None and moved:
        found = _operator(trial, probe)
    if found is None and probe is not None and moved:
        found = _frozen(trial, subject.probes[0], probe)
    return found or scanned(unit, kinds.FIXED_SIZE if moved else kinds.UNKNOWN, sizes=moved)


def _wrong_probe(subject: Subject, trial: Trial) -> Probe | None:
    pairs = zip(trial.checks, subject.probes, strict=False)
    return next((probe for check, probe in pairs if not check.ok), None)


def _sizes(probe: Probe) -> list[Any]:
    return [tuple(v.shape) for v in probe.values if isinstance(v, torch.Tensor)]


def _operator(trial: Trial, probe: Probe) -> Cause | None:
    found = first_divergence(trial, probe)
    if found is None:
        return None
    cause = at(found.places, kinds.WRONG_TRANSLATION)
    return replace(cause, construct=kinds.WRONG_TRANSLATION, operator=found.operator)


def _frozen(trial: Trial, example: Probe, probe: Probe) -> Cause | None:
    if trial.graph is None:
        return None
    for found in frozen_nodes(trial.graph, trial.feed, example, probe):
        match = re.match(r"(.+?\.py):(\d+)", found.source)
        if match and is_user_file(match[1]):
            return at([Place(match[1], int(match[2]))], kinds.FIXED_SIZE)
    return None
