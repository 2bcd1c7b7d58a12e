"""The module tree of a model as the rows of a table, each with a note."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch

from onnxpatch.inputs.module_walk import modules
from onnxpatch.patching.plan import Plan

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
