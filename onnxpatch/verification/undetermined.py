"""Wrong answers that eager itself does not hold to: rounding, float64 or another order of ties moves it as far.

Where a matrix is nearly singular, eager in float32 differs from eager in float64 more than the graph differs from it.
There is no answer to meet at such an input, so it gives no verdict.
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
_ROUNDED = "eager's own answer moves as far when its inputs move by one rounding"
_DOUBLE = "eager in float64 is as far from eager: float32 does not determine this answer"
_FAST = "eager answers otherwise while gradients are recorded: torch's fast path for inference has its own NaN"
_TIED = "torch.sort(stable=False), argsort or topk meets equal values here: torch does not determine their order"


def excuse_unsteady(
    checks: Sequence[Checked], probes: Sequence[Probe], eager: Eager, tolerance: float
) -> list[Checked]:
    """Mark the wrong answers that eager itself does not hold to. Shapes, dtypes and refusals are never excused."""
    return [excused(c, p, eager, tolerance) if c.status == "wrong" else c for c, p in zip(checks, probes, strict=True)]


def excused(check: Checked, probe: Probe, eager: Eager, tolerance: float) -> Checked:
    """The check as unsteady, with the reason, where every wrong output is one that eager does not determine.

    Values that were chosen to the last digit are not moved: 7 and 7.000001 are different data to `x == 7`.
    """
    wrong = [i for i, output in enumerate(check.outputs) if not output.ok]
    if any(check.outputs[i].first_index is None for i in wrong):
        return check  # shapes and dtypes
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
    for last in (False, True):
        with TiesBroken(last) as ties:
            answer = eager.ask(probe.values)
        if not ties.met:
            break
        yield _TIED, answer
    yield _FAST, eager.ask(probe.values, gradients=True)
    if probe.exact:
        return
    for seed, by in itertools.product((3, 4, 5), (+_ROUNDING, -_ROUNDING)):
        yield _ROUNDED, eager.ask([_nudged(value, by, seed) for value in probe.values])
    if not eager.draws:  # random numbers are others in float64
        yield _DOUBLE, eager.in_float64(probe.values)


def _as_far(again: OutputParity, found: OutputParity) -> bool:
    """Whether eager moved as far; where the graph differs in what is finite, eager must have done so, too."""
    if found.reason == NON_FINITE:
        return again.reason == NON_FINITE
    return again.first_index is not None and again.relative >= found.relative / 2


def _nudged(value: object, by: float, seed: int) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    noise = torch.rand(value.shape, generator=torch.Generator().manual_seed(seed)).to(value)
    return value * (1 + by * (noise - 0.25))
