"""A case without an export: eager at all its inputs, twice, so that a case that cannot be judged is seen at once."""

from __future__ import annotations

import copy
import time

import torch

from benchmarks.case import Case
from benchmarks.measure import deviation, tensors
from benchmarks.tables import Answer


def run_eager(case: Case) -> Answer:
    """The verdict ``runs``, or ``broken`` with the sizes and the reason."""
    started = time.perf_counter()
    seen: list[list[torch.Tensor]] = []
    for args in case.inputs:
        sizes = ", ".join(str(tuple(t.shape)) for t in tensors(args))
        if reason := trouble(case, args, seen):
            return {"verdict": "broken", "reason": f"at {sizes}: {reason}"}
    if not any(t.numel() for outputs in seen for t in outputs):
        return {"verdict": "broken", "reason": "no output has an element"}
    return {"verdict": "runs", "reason": "", "seconds": time.perf_counter() - started}


def trouble(case: Case, args: tuple[object, ...], seen: list[list[torch.Tensor]]) -> str:
    """Why one set of inputs cannot be judged; an empty string when it can."""
    with torch.no_grad():
        try:
            first, second = (tensors(case.model(*copy.deepcopy(args))) for _ in range(2))
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:300]
    seen.append(first)
    if not first:
        return "no tensor is returned"
    if not all(bool(torch.isfinite(t).all()) for t in first if t.is_floating_point()):
        return "eager's answer is not finite"
    apart = [deviation(a.detach().numpy(), b) for a, b in zip(first, second, strict=True)]
    return "eager answers differently each time" if any(isinstance(d, str) or d > 1e-4 for d in apart) else ""
