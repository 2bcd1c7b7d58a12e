"""The plot of a page: the largest relative error at each probe, plain and patched, a row for each probe.

The axis is logarithmic and as wide as the page lets it be; the names beside it are text of the page's own size, so that
a narrow screen can read it. A probe at which the graph does not run is a cross at the right end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from onnxpatch.html.comparison import Comparison
from onnxpatch.results.checks import Checked
from onnxpatch.results.report_text import STATUS

LOWEST, HIGHEST = -8, 1  # powers of ten on the axis: rounding of float32 to ten times the output
_REFUSED = 97.0  # per cent of the axis where the crosses are; errors end at 92
_LAST = 92.0


@dataclass(frozen=True)
class Mark:
    """One side at one probe. left: per cent of the axis. kind: plain or patched, for the colour."""

    kind: str
    state: str
    left: float
    text: str


@dataclass(frozen=True)
class PlotRow:
    """One probe. text: what every side is there, for those who do not see the marks."""

    label: str
    marks: tuple[Mark, ...]
    text: str


@dataclass(frozen=True)
class _Plot:
    """rows: in the order of the probes. allowed: where the tolerance is, per cent. ticks: (per cent, text)."""

    rows: list[PlotRow]
    allowed: float
    tolerance: float
    ticks: list[tuple[float, str]]


def plot(comparison: Comparison) -> _Plot | None:
    """What the template draws; None where nothing was compared."""
    report = comparison.result.report
    series = [(side, side.report.checks) for side in comparison.sides if side.report is not None]
    labels = list(dict.fromkeys(check.label for _, checks in series for check in checks))
    if not labels:
        return None
    rows = [
        _row(
            label,
            [(side is comparison.result, check) for side, checks in series for check in checks if check.label == label],
        )
        for label in labels
    ]
    tolerance = report.tolerance if report is not None else 1e-3
    ticks = [(_left(10.0**power), f"1e{power}") for power in range(LOWEST, HIGHEST, 3)]
    return _Plot(rows, _left(tolerance), tolerance, [*ticks, (_REFUSED, "×")])


def _row(label: str, checks: list[tuple[bool, Checked]]) -> PlotRow:
    marks = tuple(_mark("patched" if result else "plain", check) for result, check in checks)
    return PlotRow(label, marks, "; ".join(mark.text for mark in marks))


def _mark(kind: str, check: Checked) -> Mark:
    if check.status == "refused" or math.isnan(check.relative):
        return Mark(kind, "cross", _REFUSED, f"{kind}: {STATUS.get(check.status, check.status)}")
    text = f"{kind}: {STATUS.get(check.status, check.status)}, relative error {check.relative:.1e}"
    return Mark(kind, "" if check.ok else "bad", _left(check.relative), text)


def _left(error: float) -> float:
    """The place of a relative error on the axis, in per cent; beyond the axis it stays at its end."""
    # 1e-300 stands for an error of 0, which has no logarithm.
    power = min(max(math.log10(max(error, 1e-300)), LOWEST), HIGHEST)
    return round(1 + (_LAST - 1) * (power - LOWEST) / (HIGHEST - LOWEST), 1)
