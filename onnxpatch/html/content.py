"""From a comparison to what the template shows: plain rows, ready-made drawings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnxpatch.checking.graphs import by_module
from onnxpatch.html.code import pair
from onnxpatch.html.drawing import drawing
from onnxpatch.html.plot import plot
from onnxpatch.plan import Plan
from onnxpatch.registry import REGISTRY, Patch
from onnxpatch.reporting.comparison import Comparison, Side
from onnxpatch.walk import modules

_DRAWN = 12


@dataclass
class Row:
    """One module of the tree. state: swapped, near (matched and left alone), or ''."""

    path: str
    name: str
    depth: int
    cls: str
    state: str = ""
    note: str = ""
    nodes: str = ""


def context(comparison: Comparison) -> dict[str, Any]:
    """Everything that the template reads."""
    result = comparison.result
    report = result.report
    drawn, undrawn = drawings(comparison)
    return {
        "model": type(comparison.model).__name__,
        "sides": comparison.sides,
        "result": result,
        "report": report,
        "told": str(report).splitlines()[0] if report else result.error,
        "plot": plot(comparison),
        "rows": tree(comparison),
        "patches": _patches(comparison),
        "operators": operators(comparison),
        "drawings": drawn,
        "undrawn": undrawn,
        "dimensions": dimensions(comparison),
    }


def tree(comparison: Comparison) -> list[Row]:
    """The module tree; runs of untouched children are folded into their parent."""
    notes = _notes(comparison)
    counts = [by_module(side.proto) if side.proto is not None else {} for side in comparison.sides]
    told = {path for path in notes if notes[path][0]}
    rows, seen = [], set()
    for path, module in modules(comparison.model):
        if id(module) in seen:
            continue
        seen.add(id(module))
        if not _shown(path, told):
            continue
        state, note = notes.get(path, ("", ""))
        per = [str(within(count, path)) for count in counts if count]
        name = path.rpartition(".")[2] or "(root)"
        rows.append(Row(path, name, path.count(".") + bool(path), type(module).__name__, state, note, " → ".join(per)))
    return rows


def within(count: Mapping[str, list[Any]], path: str) -> int:
    """How many nodes came from the module at `path` and from those in it."""
    return sum(len(nodes) for one, nodes in count.items() if not path or one == path or one.startswith(f"{path}."))


def _shown(path: str, told: set[str]) -> bool:
    """The first two levels, whatever has something to tell, and all that leads there."""
    return path.count(".") < 1 or path in told or any(one.startswith(f"{path}.") for one in told)


def _notes(comparison: Comparison) -> dict[str, tuple[str, str]]:
    made, notes = comparison.plan, dict[str, tuple[str, str]]()
    if made is None:
        return notes
    for miss in made.near_misses:
        if miss.path is not None:
            notes[miss.path] = ("near", f"{miss.patch}: {miss.reason}")
    for swap in made.swaps:
        notes[swap.path] = ("swapped", f"{swap.patch.name}: {swap.patch.why}")
    return notes


def _acted(comparison: Comparison) -> list[Patch]:
    """The patches that the report says acted; without a report, those of the plan."""
    report = comparison.result.report
    names = [str(row.get("patch")) for row in report.plan] if report else []
    planned = {patch.name: patch for patch in comparison.plan.patches()} if comparison.plan else {}
    planned |= {patch.name: patch for patch in REGISTRY if patch.name not in planned}
    return [planned[name] for name in dict.fromkeys(names) if name in planned]


def _patches(comparison: Comparison) -> list[dict[str, Any]]:
    first = _first_modules(comparison.plan)
    return [
        {"patch": patch, "where": first.get(patch.name, (", ".join(patch.targets[:4]), None))[0],
         "pair": pair(patch, first.get(patch.name, ("", None))[1])}
        for patch in _acted(comparison)
    ]  # fmt: skip


def _first_modules(made: Plan | None) -> dict[str, tuple[str, Any]]:
    found: dict[str, list[Any]] = {}
    for swap in made.swaps if made else ():
        found.setdefault(swap.patch.name, []).append(swap)
    return {name: (", ".join(s.path or "(root)" for s in swaps[:6]), swaps[0].module) for name, swaps in found.items()}


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
    """Where `name` is frozen. A finding at several sizes that moved together is dropped where fewer explain it."""
    if side.report is None:
        return []
    moved = [(set(f.dimension.split(", ")), f) for f in side.report.frozen]
    least = [f for names, f in moved if name in names and not any(o < names and g.node == f.node for o, g in moved)]
    told = [" ".join(part for part in (f.where, f.op, f.node, f.source) if part) for f in least]
    return list(dict.fromkeys(told))
