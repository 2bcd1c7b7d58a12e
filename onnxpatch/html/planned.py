"""What the page of a plan shows, of which other pages have parts: the tree of modules, a card for each patch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from onnxpatch.html.code import LinePair, pair
from onnxpatch.inputs.modules import modules
from onnxpatch.messages.text import counted
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


Notes = Mapping[str, tuple[str, str]]  # path of a module: (state, note)


@dataclass
class TreeRow:
    """One module of the tree. state: swapped, near (matched and left alone), culprit, or ''."""

    path: str
    name: str
    depth: int
    cls: str
    state: str = ""
    note: str = ""
    nodes: str = ""


def rows(model: torch.nn.Module, notes: Notes, nodes: Callable[[str], str] = lambda path: "") -> list[TreeRow]:
    """A row for each module of the first two levels, for each with a note, and for those around it.

    A module that is in the model twice gets one row. nodes: the text about a module's nodes in the graph, by its path.
    """
    table, seen = [], set[int]()
    for path, module in modules(model):
        if id(module) in seen:  # a module that several parents share
            continue
        seen.add(id(module))
        if _has_row(path, notes):
            name, depth = path.rpartition(".")[2] or "(root)", path.count(".") + bool(path)
            table.append(TreeRow(path, name, depth, type(module).__name__, *notes.get(path, ("", "")), nodes(path)))
    return table


def _has_row(path: str, noted: Iterable[str]) -> bool:
    # Two levels show the model's outline; deeper modules only where there is something to say of them.
    return path.count(".") < 1 or any(one == path or one.startswith(f"{path}.") for one in noted)


def plan_notes(plan: Plan | None) -> dict[str, tuple[str, str]]:
    """A note for each module that a plan swaps, and for each that a patch matched but does not apply to."""
    notes: dict[str, tuple[str, str]] = {}
    for miss in plan.near_misses if plan else ():
        if miss.path is not None:
            _add_note(notes, miss.path, "near", f"{miss.patch}: {miss.reason}")
    for swap in plan.swaps if plan else ():
        _add_note(notes, swap.path, "swapped", f"{swap.patch.name}: {swap.patch.why}")
    return notes


def _add_note(notes: dict[str, tuple[str, str]], path: str, state: str, note: str) -> None:
    """Add a note after others of the same state. "swapped", which is added last, replaces "near"."""
    before = notes.get(path)
    notes[path] = (state, f"{before[1]}; {note}" if before and before[0] == state else note)
