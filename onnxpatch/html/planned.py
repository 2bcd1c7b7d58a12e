"""From a plan to what its page shows."""

from __future__ import annotations

from typing import Any

from onnxpatch.html.patches import cards, shortened
from onnxpatch.html.tree import planned, rows
from onnxpatch.patching.plan import Plan
from onnxpatch.versions import versions


def context(made: Plan) -> dict[str, Any]:
    """Everything that the template reads."""
    swapped = list({swap.patch.name: swap.patch for swap in made.swaps}.values())
    return {
        "model": type(made.model).__name__,
        "verdict": _counted(len({swap.path for swap in made.swaps}), "module") + " swapped",
        "state": "",
        "told": _asked(made),
        "rows": rows(made.model, planned(made)),
        "aliases": [(swap.path or "(root)", swap.aliases) for swap in made.swaps if swap.aliases],
        "swapped": cards(swapped, made),
        "functions": cards([patch for patch, _ in made.functions], None),
        "left": _left(made),
        "missed": len(made.near_misses),
        "findings": made.findings,
        "versions": versions(),
    }


def _counted(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


def _asked(made: Plan) -> str:
    settings = made.settings
    told = [f"for {settings.exporter or 'whichever exporter is called'}"]
    told += [f"opset {settings.opset}"] if settings.opset else []
    told += ["image size {}x{}".format(*settings.image_size)] if settings.image_size else []
    told += ["with branches"] if settings.branches else []
    return f"what patching would do, {', '.join(told)}; nothing was changed"


def _left(made: Plan) -> list[tuple[str, str, str]]:
    """(patch, reason, modules) of what matched and is left alone; modules with the same reason in one row."""
    found: dict[tuple[str, str], list[str]] = {}
    for miss in made.near_misses:
        where = found.setdefault((miss.patch, miss.reason), [])
        where += [] if miss.path is None else [miss.path or "(root)"]
    return [(patch, reason, shortened(where)) for (patch, reason), where in found.items()]
