"""How far each output is from eager's, for a file that is meant to differ: quantized, or in float16.

    logits: cosine 0.99921, top-1 0.985, relative error 0.031

Cosine and relative error are the worst of all comparisons. Top-1 is counted over the rows of all of them: a comparison
by itself often has one row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from onnxpatch.errors import InputError
from onnxpatch.results.checks import Checked, OutputParity

# What is close enough where nobody says: a share of rows, a cosine, a share of the output's largest magnitude.
THRESHOLDS = {"top1": 0.95, "cosine": 0.99, "relative": 0.1}
_SAID = {"top1": "top-1", "cosine": "cosine", "relative": "relative error"}
_ONE_VALUE = "top-1 has nothing to choose from in rows of one value: compare by cosine or relative error"


@dataclass(frozen=True)
class _Closeness:
    """One measure and how much of it is close enough. `str` is what `compare=` takes: `cosine=0.99`."""

    measure: str
    threshold: float

    def __str__(self) -> str:
        return f"{self.measure}={self.threshold:g}"

    def judged(self, checks: Sequence[Checked]) -> list[Checked]:
        """The checks, with a reason at each output that is too far. What is wrong by itself stays wrong."""
        shares = {one.output: one.top1 for one in distances(checks)}
        return [_with(check, [self._judged(one, shares) for one in check.outputs]) for check in checks]

    def _judged(self, one: OutputParity, shares: dict[str, float]) -> OutputParity:
        found = {"top1": one.top1, "cosine": one.cosine, "relative": one.relative}[self.measure]
        if not one.ok or not math.prod(one.shape):
            return one
        if math.isnan(found):
            return replace(one, reason=_ONE_VALUE) if self.measure == "top1" else one
        far = found > self.threshold if self.measure == "relative" else found < self.threshold
        if not far or (self.measure == "top1" and shares[one.name] >= self.threshold):
            return one
        bound = "at most" if self.measure == "relative" else "at least"
        return replace(one, reason=f"{_SAID[self.measure]} {found:.3g}, {bound} {self.threshold:g} is close")


@dataclass(frozen=True)
class _Distance:
    """How far one output is from eager's, over all comparisons."""

    output: str
    cosine: float
    top1: float
    relative: float

    def sentence(self) -> str:
        found = {"cosine": (self.cosine, 5), "top-1": (self.top1, 3), "relative error": (self.relative, 2)}
        parts = [f"{name} {value:.{digits}g}" for name, (value, digits) in found.items() if not math.isnan(value)]
        return f"{self.output}: {', '.join(parts)}" if parts else f"{self.output}: not compared"


def closeness(text: str) -> _Closeness:
    """The measure in a text such as `top1` or `cosine=0.98`. Raises InputError for another one."""
    name, given, threshold = text.partition("=") if isinstance(text, str) else (str(text), "", "")
    try:
        if name in THRESHOLDS and 0 <= (value := float(threshold) if given else THRESHOLDS[name]) <= 1:
            return _Closeness(name, value)
    except ValueError:
        pass
    known = ", ".join(f"{name}={value:g}" for name, value in THRESHOLDS.items())
    raise InputError(f"compare={text!r}: give one of {known}, with a threshold of your own from 0 to 1 or without")


def distances(checks: Sequence[Checked]) -> list[_Distance]:
    """One for each output, in order."""
    found: dict[str, list[OutputParity]] = {}
    for one in (one for check in checks for one in check.outputs if math.prod(one.shape)):
        found.setdefault(one.name, []).append(one)
    return [
        _Distance(name, _known(min, [o.cosine for o in ones]), _pooled(ones), _known(max, [o.relative for o in ones]))
        for name, ones in found.items()
    ]


def _pooled(outputs: Sequence[OutputParity]) -> float:
    weighed = [(one.top1, _rows(one)) for one in outputs if not math.isnan(one.top1)]
    rows = sum(weight for _, weight in weighed)
    return sum(share * weight for share, weight in weighed) / rows if rows else math.nan


def _rows(one: OutputParity) -> int:
    return math.prod(one.shape[:-1]) if "float" in one.dtype else math.prod(one.shape)


def _known(pick: Callable[[Sequence[float]], float], values: Sequence[float]) -> float:
    return pick([value for value in values if not math.isnan(value)] or [math.nan])


def _with(check: Checked, outputs: Sequence[OutputParity]) -> Checked:
    far = check.status == "right" and any(not one.ok for one in outputs)
    return replace(check, outputs=tuple(outputs), status="wrong" if far else check.status)
