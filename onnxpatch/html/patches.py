"""What the page of a plan shows, and the cards of any page that show patches: modules, code before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnxpatch.html.code import LinePair, pair
from onnxpatch.html.tree import plan_notes, rows
from onnxpatch.messages.quantities import counted
from onnxpatch.patching.plan import Plan, Swap
from onnxpatch.patching.registry import Patch
from onnxpatch.versions import versions

_MOST_NAMES = 6


@dataclass
class _Card:
    """One patch. where: paths of the modules that it applies to, or its targets where it applies to none."""

    patch: Patch
    where: str
    pair: LinePair


def cards(patches: Sequence[Patch], plan: Plan | None) -> list[_Card]:
    """A card for each patch. The code before is that of the first module that the plan applies the patch to."""
    swaps: dict[str, list[Swap]] = {}
    for swap in plan.swaps if plan else ():
        swaps.setdefault(swap.patch.name, []).append(swap)
    return [_card(patch, swaps.get(patch.name, [])) for patch in patches]


def _card(patch: Patch, swaps: list[Swap]) -> _Card:
    if not swaps:
        return _Card(patch, shortened(patch.targets), pair(patch))
    return _Card(patch, shortened([swap.path or "(root)" for swap in swaps]), pair(patch, swaps[0].module))


def shortened(names: Sequence[str]) -> str:
    """The first few names and the number of the others: `a, b and 3 more`."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


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
