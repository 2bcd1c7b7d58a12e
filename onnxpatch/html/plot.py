"""The largest relative error at every probe, plain and patched, as inline SVG: logarithmic, refusals on top."""

from __future__ import annotations

import math
from html import escape

from onnxpatch.html.comparison import Comparison
from onnxpatch.results.report import Checked

_STEP, _TOP, _TALL, _LEFT, _LABELS = 46, 34, 190, 64, 120
_LOWEST, _HIGHEST = -8, 1


def plot(comparison: Comparison) -> str:
    """SVG; "" where nothing was compared."""
    series = [(i, side, side.report.checks) for i, side in enumerate(comparison.sides) if side.report is not None]
    labels = list(dict.fromkeys(check.label for _, _, checks in series for check in checks))
    if not labels:
        return ""
    width = _LEFT + _STEP * len(labels) + 20
    parts = [*_axis(width), *_bound(comparison, width), *_names(labels)]
    for index, side, checks in series:
        offset = 7 if index == len(comparison.sides) - 1 and len(series) > 1 else -7 if len(series) > 1 else 0
        kind = "patched" if side is comparison.result else "plain"
        parts += [_mark(check, _x(labels.index(check.label)) + offset, kind) for check in checks]
    height = _TOP + _TALL + _LABELS
    return f'<svg class="plot" width="{width}" height="{height}" viewBox="0 0 {width} {height}">{"".join(parts)}</svg>'


def _x(index: int) -> float:
    return _LEFT + _STEP * (index + 0.5)


def _y(error: float) -> float:
    power = min(max(math.log10(max(error, 1e-300)), _LOWEST), _HIGHEST)
    return _TOP + _TALL * (_HIGHEST - power) / (_HIGHEST - _LOWEST)


def _axis(width: float) -> list[str]:
    parts = []
    for power in range(_LOWEST, _HIGHEST + 1, 2 if _HIGHEST - _LOWEST > 8 else 1):
        y = _y(10.0**power)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{width - 10}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}">1e{power}</text>')
    return [*parts, f'<text class="tick" x="{_LEFT - 8}" y="{_TOP - 14}">refused</text>']


def _bound(comparison: Comparison, width: float) -> list[str]:
    report = comparison.result.report
    if report is None:
        return []
    y = _y(report.tolerance)
    text = f'<text class="bound" x="{width - 12}" y="{y - 4:.1f}">allowed {report.tolerance:g}</text>'
    return [f'<line class="bound" x1="{_LEFT}" x2="{width - 10}" y1="{y:.1f}" y2="{y:.1f}"/>', text]


def _names(labels: list[str]) -> list[str]:
    y = _TOP + _TALL + 14
    return [
        f'<text class="name" transform="translate({_x(i) + 4:.1f},{y}) rotate(-45)">{escape(_short(label))}</text>'
        for i, label in enumerate(labels)
    ]


def _short(label: str) -> str:
    return label if len(label) <= 24 else label[:23] + "…"


def _mark(check: Checked, x: float, kind: str) -> str:
    tip = f"<title>{escape(f'{kind} at {check.label}: {check.status}')} {check.relative:.2e}</title>"
    error = check.relative
    if check.status == "refused" or math.isnan(error):
        y = _TOP - 18
        return f'<g class="{kind} cross">{tip}<path d="M{x - 5},{y - 5} l10,10 m0,-10 l-10,10"/></g>'
    state = "" if check.ok else " bad"
    return f'<g class="{kind}{state}">{tip}<circle cx="{x:.1f}" cy="{_y(error):.1f}" r="5.5"/></g>'
