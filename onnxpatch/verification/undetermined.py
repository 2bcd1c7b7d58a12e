"""Finds differences from eager that say nothing about the graph, since eager's own answer is arbitrary there.

Eager is run again at the same probe: with inputs moved by one rounding, in float64, with gradients recorded, and with
equal values sorted the other way round. Where one of these changes eager's output as much as the graph differs from it,
the check is "unsteady" and not "wrong":

    inverse of a nearly singular matrix    float32 and float64 differ by 2 %; so may the graph
    x == 7, with 7 in the probe            the value was chosen exactly: its inputs are not moved
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from onnxpatch.results.report import Checked, OutputParity
from onnxpatch.verification.comparison import NON_FINITE, compare_all
from onnxpatch.verification.eager import Answer, Eager
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.tied_order import TiesBroken

_ROUNDING = 1e-6
_ROUNDED = "PyTorch's own output changes as much when its inputs change by one rounding"
_DOUBLE = "PyTorch in float64 differs from float32 as much: float32 does not determine this answer"
_FAST = "PyTorch's output differs while gradients are recorded: its fast path for inference has its own NaN"
_TIED = "torch.sort(stable=False), argsort or topk got equal values: PyTorch does not determine their order"


def excuse_unsteady(
    checks: Sequence[Checked], probes: Sequence[Probe], eager: Eager, tolerance: float
) -> list[Checked]:
    """The checks, with those that eager does not determine marked unsteady. Shapes, dtypes and refusals stay wrong."""
    return [excused(c, p, eager, tolerance) if c.status == "wrong" else c for c, p in zip(checks, probes, strict=True)]


def excused(check: Checked, probe: Probe, eager: Eager, tolerance: float) -> Checked:
    """The check, marked unsteady with the reason where eager determines none of its wrong outputs."""
    wrong = [i for i, output in enumerate(check.outputs) if not output.ok]
    if any(check.outputs[i].first_index is None for i in wrong):
        return check  # another shape or dtype is never excused
    names = [output.name for output in check.outputs]
    unmoved = set(wrong)
    for reason, answer in _other_answers(probe, eager):
        again = compare_all(names, probe.expected, answer.outputs or (), tolerance)
        if answer.outputs is not None and len(again) == len(names):
            unmoved -= {i for i in unmoved if _as_far(again[i], check.outputs[i])}
        if not unmoved:
            return replace(check, status="unsteady", error=reason)
    return check


def _other_answers(probe: Probe, eager: Eager) -> Iterator[tuple[str, Answer]]:
    # Sorts both ways round: eager may happen to use one of them already.
    for last in (False, True):
        with TiesBroken(last) as ties:
            answer = eager.ask(probe.values)
        if not ties.met:
            break
        yield _TIED, answer
    yield _FAST, eager.ask(probe.values, gradients=True)
    # The values were chosen to sit on a comparison: moved by a rounding they take the other branch, which excuses
    # nothing.
    if probe.exact:
        return
    for seed, by in itertools.product((3, 4, 5), (+_ROUNDING, -_ROUNDING)):
        yield _ROUNDED, eager.ask([_nudged(value, by, seed) for value in probe.values])
    if not eager.draws:  # torch draws other random numbers in float64
        yield _DOUBLE, eager.in_float64(probe.values)


def _as_far(again: OutputParity, found: OutputParity) -> bool:
    """Whether eager changed as much as the graph differs. A difference in NaN or infinity needs one in eager, too."""
    if found.reason == NON_FINITE:
        return again.reason == NON_FINITE
    # Half as much is enough: a few nudges rarely find the largest change.
    return again.first_index is not None and again.relative >= found.relative / 2


def _nudged(value: object, by: float, seed: int) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    noise = torch.rand(value.shape, generator=torch.Generator().manual_seed(seed)).to(value)
    return value * (1 + by * (noise - 0.25))
