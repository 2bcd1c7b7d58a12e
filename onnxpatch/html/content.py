"""What the page of an export shows, as the dict that its template reads: the graphs compared, the plot of the errors.

The plot has the largest relative error at each probe, plain and patched, a row for each probe. Its axis is logarithmic
and as wide as the page lets it be; the names beside it are text of the page's own size, so that a narrow screen can
read it. A probe at which the graph does not run is a cross at the right end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from onnxpatch.html.comparison import Comparison, file_inputs, file_outputs
from onnxpatch.html.drawing import drawing
from onnxpatch.html.planned import cards, marked, plan_notes, tree_rows
from onnxpatch.onnxfile.graph import by_module
from onnxpatch.patching.registry import REGISTRY, Patch
from onnxpatch.results.checks import EXPORTING, Checked, Untried
from onnxpatch.results.report_text import STATUS

if TYPE_CHECKING:
    from onnx import NodeProto

    from onnxpatch.results.report import Report


_MOST_DRAWN = 12


class _Drawing(TypedDict):
    """One module's part of the graph, drawn for each side. sides: (side, SVG or "")."""

    path: str
    swapped: bool
    sides: Sequence[tuple[object, str]]


class _Dimension(TypedDict):
    """One dimension that may change. sides: for each side `_freedom`, and where it is specialized."""

    name: str
    size: int
    sides: list[tuple[str, list[tuple[str, str]]]]


def context(comparison: Comparison) -> dict[str, object]:
    """The names that page.html.j2 uses."""
    result = comparison.result
    report = result.report
    drawn, undrawn = drawings(comparison)
    return {
        "model": type(comparison.model).__name__,
        "verdict": result.score,
        "state": "good" if result.ok else "bad",
        "sides": comparison.sides,
        "result": result,
        "report": report,
        "summary": str(report).splitlines()[0] if report is not None else result.error,
        "plot": plot(comparison),
        "words": STATUS,
        "call": comparison.call,
        "command": comparison.command,
        "inputs": file_inputs(result.proto) if result.proto is not None else [],
        "outputs": file_outputs(result.proto) if result.proto is not None else [],
        "rows": tree(comparison),
        "swaps": bool(comparison.plan and comparison.plan.swaps),
        "untried": [(sides, marked(sides)) for sides in _by_function(report)] if report is not None else [],
        "advice": report.advice if report is not None else "",
        "patches": cards(_acted(comparison), comparison.plan),
        "operators": operator_rows(comparison),
        "drawings": drawn,
        "undrawn": undrawn,
        "dimensions": dimensions(comparison),
    }


def _by_function(report: Report) -> list[list[Untried]]:
    found: dict[object, list[Untried]] = {}
    for one in report.untried:
        found.setdefault((one.place.rpartition(":")[0], one.span if one.span[0] else one.place), []).append(one)
    return list(found.values())


def tree(comparison: Comparison) -> Sequence[object]:
    """The module tree, with the number of nodes that came from each module on every side."""
    counts = [by_module(side.proto) for side in comparison.sides if side.proto is not None]

    def nodes(path: str) -> str:
        return " → ".join(str(within(count, path)) for count in counts)

    return tree_rows(comparison.model, plan_notes(comparison.plan), nodes)


def within(count: Mapping[str, Sequence[NodeProto]], path: str) -> int:
    """How many nodes came from the module at `path` and from those inside it. count: the nodes by path."""
    # With the dot: blocks.10 is not inside blocks.1.
    return sum(len(nodes) for one, nodes in count.items() if not path or one == path or one.startswith(f"{path}."))


def _acted(comparison: Comparison) -> list[Patch]:
    """The patches that acted, by the report."""
    report = comparison.result.report
    names = [str(row.get("patch")) for row in report.plan] if report is not None else []
    known = {patch.name: patch for patch in REGISTRY}
    known |= {patch.name: patch for patch in comparison.plan.patches()} if comparison.plan else {}
    return [known[name] for name in dict.fromkeys(names) if name in known]


def operator_rows(comparison: Comparison) -> list[tuple[str, list[int]]]:
    """(operator, how often on each side), those first whose number changed most."""
    counts = [side.histogram() for side in comparison.sides]
    names = {name for count in counts for name in count}
    rows = [(name, [count.get(name, 0) for count in counts]) for name in names]
    return sorted(rows, key=lambda row: (-abs(row[1][-1] - row[1][0]), -row[1][-1], row[0]))


def drawings(comparison: Comparison) -> tuple[list[_Drawing], list[str]]:
    """The first modules that are swapped or whose part of the graph changed, drawn; and the paths of the others."""
    swapped = [swap.path for swap in comparison.plan.swaps] if comparison.plan else []
    drawn: list[_Drawing] = []
    paths = list(dict.fromkeys([*swapped, *_changed([side.proto for side in comparison.sides])]))
    while paths and len(drawn) < _MOST_DRAWN:
        path = paths.pop(0)
        sides = [(side, _drawn(side.proto, path)) for side in comparison.sides]
        if any(svg for _, svg in sides):
            drawn.append({"path": path or "(root)", "swapped": path in swapped, "sides": sides})
    return drawn, [path or "(root)" for path in paths]


def _drawn(proto: Any, path: str) -> str:
    if proto is None:
        return ""
    inside = [one for one in by_module(proto) if one == path or (path and one.startswith(f"{path}."))]
    return drawing(proto, inside)


def _changed(protos: list[Any]) -> list[str]:
    """Paths of modules whose operators differ between the sides; for a single graph, of its first three modules."""
    graphs = [proto for proto in protos if proto is not None]
    if len(graphs) < 2:
        return list(by_module(graphs[0]))[:3] if graphs else []
    before, after = (
        {path: [node.op_type for node in nodes] for path, nodes in by_module(proto).items()} for proto in graphs
    )
    return [path for path in dict.fromkeys([*after, *before]) if before.get(path) != after.get(path)]


def dimensions(comparison: Comparison) -> list[_Dimension]:
    """Every dimension that may change: whether it is free on each side, and where it is specialized."""
    names: dict[str, int] = {}
    for side in comparison.sides:
        names |= side.report.dimensions if side.report is not None else {}
    return [
        {
            "name": name,
            "size": size,
            "sides": [(_freedom(side.report, name), _specialized(side.report, name)) for side in comparison.sides],
        }
        for name, size in names.items()
    ]


def _freedom(report: Report | None, name: str) -> str:
    """Whether a dimension can change: "free" (right at some other size), "wrong" (at none), "" (not verified).

    "unproven": no other size was compared, since eager accepts none or the budget was reached.
    """
    if report is None:
        return ""
    moved = [c for c in report.checks if c.sizes.get(name) not in (None, report.dimensions[name])]
    if not moved or any(one.dimension == name for one in report.unproven):
        return "unproven"
    return "free" if any(check.ok for check in moved) else "wrong"


def _specialized(report: Report | None, name: str) -> list[tuple[str, str]]:
    """Where a dimension is specialized to the example's size: for each finding a sentence and the line of Python."""
    if report is None:
        return []
    findings = [one for one in report.frozen if name in one.dimension.split(", ")]
    told = [(" ".join(part for part in (one.where, one.op, one.node) if part), one.source) for one in findings]
    return list(dict.fromkeys(told))


LOWEST, HIGHEST = -8, 1  # powers of ten on the axis: rounding of float32 to ten times the output
_REFUSED = 97.0  # per cent of the axis where the crosses are; errors end at 92
_LAST = 92.0


@dataclass(frozen=True)
class _Mark:
    """One side at one probe. left: per cent of the axis. kind: plain or patched, for the colour."""

    kind: str
    state: str
    left: float
    text: str


@dataclass(frozen=True)
class _PlotRow:
    """One probe. text: what every side is there, for those who do not see the marks."""

    label: str
    marks: tuple[_Mark, ...]
    text: str


@dataclass(frozen=True)
class _Plot:
    """rows: in the order of the probes. allowed: where the tolerance is, per cent. ticks: (per cent, text)."""

    rows: list[_PlotRow]
    allowed: float
    tolerance: float
    ticks: list[tuple[float, str]]


def plot(comparison: Comparison) -> _Plot | None:
    """What the template draws; None where nothing was compared."""
    report = comparison.result.report
    series = [
        (side, [check for check in side.report.checks if check.stage != EXPORTING])
        for side in comparison.sides
        if side.report is not None
    ]
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


def _row(label: str, checks: list[tuple[bool, Checked]]) -> _PlotRow:
    marks = tuple(_mark("patched" if result else "plain", check) for result, check in checks)
    return _PlotRow(label, marks, "; ".join(mark.text for mark in marks))


def _mark(kind: str, check: Checked) -> _Mark:
    if check.status == "refused" or math.isnan(check.relative):
        return _Mark(kind, "cross", _REFUSED, f"{kind}: {STATUS.get(check.status, check.status)}")
    text = f"{kind}: {STATUS.get(check.status, check.status)}, relative error {check.relative:.1e}"
    return _Mark(kind, "" if check.ok else "bad", _left(check.relative), text)


def _left(error: float) -> float:
    """The place of a relative error on the axis, in per cent; beyond the axis it stays at its end."""
    # 1e-300 stands for an error of 0, which has no logarithm.
    power = min(max(math.log10(max(error, 1e-300)), LOWEST), HIGHEST)
    return round(1 + (_LAST - 1) * (power - LOWEST) / (HIGHEST - LOWEST), 1)
