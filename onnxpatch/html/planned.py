"""What the page of a plan shows, as the dict that its template reads."""

from __future__ import annotations

from onnxpatch.html.patches import cards, shortened
from onnxpatch.html.tree import plan_notes, rows
from onnxpatch.messages.quantities import counted
from onnxpatch.patching.plan import Plan
from onnxpatch.versions import versions


def context(plan: Plan) -> dict[str, object]:
    """The names that plan.html.j2 uses."""
    likely = plan.likely()
    swapped = list({swap.patch.name: swap.patch for swap in plan.swaps}.values())
    return {
        "model": type(plan.model).__name__,
        "verdict": f"{counted(len({swap.path for swap in plan.swaps}), 'module')} swapped, "
        f"{counted(len(likely), 'function')} replaced",
        "state": "",
        "summary": _summary(plan),
        "rows": rows(plan.model, plan_notes(plan)),
        "aliases": [(swap.path or "(root)", swap.aliases) for swap in plan.swaps if swap.aliases],
        "swapped": cards(swapped, plan),
        "likely": [
            (cards([patch], None)[0], *likely[patch.name]) for patch, _ in plan.functions if patch.name in likely
        ],
        "functions": cards([patch for patch, _ in plan.functions if patch.name not in likely], None),
        "left_alone": _left_alone(plan),
        "missed": len(plan.near_misses),
        "findings": plan.findings,
        "versions": versions(),
    }


def _summary(plan: Plan) -> str:
    settings = plan.settings
    options = [f"for {settings.exporter or 'any exporter'}"]
    options += [f"opset {settings.opset}"] if settings.opset else []
    options += ["image size {}x{}".format(*settings.image_size)] if settings.image_size else []
    options += ["with branches"] if settings.branches else []
    return f"what patching would do, {', '.join(options)}; nothing was changed"


def _left_alone(plan: Plan) -> list[tuple[str, str, str]]:
    """(patch, reason, modules) where a patch matched but does not apply; one row for all modules with one reason."""
    modules: dict[tuple[str, str], list[str]] = {}
    for miss in plan.near_misses:
        paths = modules.setdefault((miss.patch, miss.reason), [])
        paths += [] if miss.path is None else [miss.path or "(root)"]
    return [(patch, reason, shortened(paths)) for (patch, reason), paths in modules.items()]
