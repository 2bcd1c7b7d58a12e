"""From a comparison to what the template shows: plain rows, ready-made drawings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnxpatch.html.comparison import Comparison, Side
from onnxpatch.html.drawing import drawing
from onnxpatch.html.patches import cards
from onnxpatch.html.plot import plot
from onnxpatch.html.tree import Row, planned, rows
from onnxpatch.onnxfile.graph import by_module
from onnxpatch.patching.registry import REGISTRY, Patch

_DRAWN = 12


def context(comparison: Comparison) -> dict[str, Any]:
    """Everything that the template reads."""
    result = comparison.result
    report = result.report
    drawn, undrawn = drawings(comparison)
    return {
        "model": type(comparison.model).__name__,
        "verdict": result.verdict,
        "state": "good" if result.ok else "bad",
        "sides": comparison.sides,
        "result": result,
        "report": report,
        "told": str(report).splitlines()[0] if report else result.error,
        "plot": plot(comparison),
        "rows": tree(comparison),
        "patches": cards(_acted(comparison), comparison.plan),
        "operators": operators(comparison),
        "drawings": drawn,
        "undrawn": undrawn,
        "dimensions": dimensions(comparison),
    }


def tree(comparison: Comparison) -> list[Row]:
    """The module tree, with the nodes that came from each module on every side."""
    counts = [by_module(side.proto) for side in comparison.sides if side.proto is not None]

    def nodes(path: str) -> str:
        return " → ".join(str(within(count, path)) for count in counts)

    return rows(comparison.model, planned(comparison.plan), nodes)


def within(count: Mapping[str, list[Any]], path: str) -> int:
    """How many nodes came from the module at `path` and from those in it."""
    return sum(len(nodes) for one, nodes in count.items() if not path or one == path or one.startswith(f"{path}."))


def _acted(comparison: Comparison) -> list[Patch]:
    """The patches that the report says acted; without a report, those of the plan."""
    report = comparison.result.report
    names = [str(row.get("patch")) for row in report.plan] if report else []
    planned = {patch.name: patch for patch in comparison.plan.patches()} if comparison.plan else {}
    planned |= {patch.name: patch for patch in REGISTRY if patch.name not in planned}
    return [planned[name] for name in dict.fromkeys(names) if name in planned]


def operators(comparison: Comparison) -> list[tuple[str, list[int]]]:
    """(operator, how often on each side), the most changed first."""
    counts = [side.histogram() for side in comparison.sides]
    names = {name for count in counts for name in count}
    rows = [(name, [count.get(name, 0) for count in counts]) for name in names]
    return sorted(rows, key=lambda row: (-abs(row[1][-1] - row[1][0]), -row[1][-1], row[0]))


def drawings(comparison: Comparison) -> tuple[list[dict[str, Any]], list[str]]:
    """Each swapped module, then each whose part of the graph changed, drawn on every side; and those left out."""
    swapped = [swap.path for swap in comparison.plan.swaps] if comparison.plan else []
    found: list[dict[str, Any]] = []
    paths = list(dict.fromkeys([*swapped, *_changed(comparison.sides)]))
    while paths and len(found) < _DRAWN:
        path = paths.pop(0)
        made = [(side, _drawn(side, path)) for side in comparison.sides]
        if any(svg for _, svg in made):
            found.append({"path": path or "(root)", "swapped": path in swapped, "sides": made})
    return found, [path or "(root)" for path in paths]


def _drawn(side: Side, path: str) -> str:
    if side.proto is None:
        return ""
    inside = [one for one in by_module(side.proto) if one == path or (path and one.startswith(f"{path}."))]
    return drawing(side.proto, inside)


def _changed(sides: list[Side]) -> list[str]:
    if len(sides) < 2 or any(side.proto is None for side in sides):
        first = next((side for side in reversed(sides) if side.proto is not None), None)
        return list(by_module(first.proto))[:3] if first and len(sides) < 2 else []
    before, after = (
        {path: [node.op_type for node in nodes] for path, nodes in by_module(side.proto).items()} for side in sides
    )
    return [path for path in dict.fromkeys([*after, *before]) if before.get(path) != after.get(path)]


def dimensions(comparison: Comparison) -> list[dict[str, Any]]:
    """Every size that may change: what became of it on each side, and where it was found frozen."""
    names: dict[str, int] = {}
    for side in comparison.sides:
        names |= side.report.dimensions if side.report else {}
    return [
        {
            "name": name,
            "size": size,
            "sides": [(_freedom(side, name), _frozen(side, name)) for side in comparison.sides],
        }
        for name, size in names.items()
    ]


def _freedom(side: Side, name: str) -> str:
    """free: right at a size other than traced; wrong: nowhere right there; unasked: no other size was accepted."""
    if side.report is None:
        return ""
    moved = [c for c in side.report.checks if c.sizes.get(name) not in (None, side.report.dimensions[name])]
    if not moved:
        return "unasked"
    return "free" if any(check.ok for check in moved) else "wrong"


def _frozen(side: Side, name: str) -> list[str]:
    """Where `name` is frozen, a sentence for each finding of the report."""
    if side.report is None:
        return []
    found = [one for one in side.report.frozen if name in one.dimension.split(", ")]
    sentences = [" ".join(part for part in (one.where, one.op, one.node, one.source) if part) for one in found]
    return list(dict.fromkeys(sentences))
