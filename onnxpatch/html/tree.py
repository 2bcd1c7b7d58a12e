"""The modules of a model as rows of a table, each with what there is to tell of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch

from onnxpatch.patching.plan import Plan
from onnxpatch.patching.walk import modules

Notes = Mapping[str, tuple[str, str]]  # path of a module: (state, note)


@dataclass
class Row:
    """One module of the tree. state: swapped, near (matched and left alone), culprit, or ''."""

    path: str
    name: str
    depth: int
    cls: str
    state: str = ""
    note: str = ""
    nodes: str = ""


def rows(model: torch.nn.Module, notes: Notes, nodes: Callable[[str], str] = lambda path: "") -> list[Row]:
    """The module tree; runs of untouched children are folded into their parent. nodes: what to tell of the graph."""
    found, seen = [], set[int]()
    for path, module in modules(model):
        if id(module) in seen:
            continue
        seen.add(id(module))
        if _shown(path, notes):
            name, depth = path.rpartition(".")[2] or "(root)", path.count(".") + bool(path)
            found.append(Row(path, name, depth, type(module).__name__, *notes.get(path, ("", "")), nodes(path)))
    return found


def _shown(path: str, told: Iterable[str]) -> bool:
    """The first two levels, whatever has something to tell, and all that leads there."""
    return path.count(".") < 1 or any(one == path or one.startswith(f"{path}.") for one in told)


def planned(made: Plan | None) -> dict[str, tuple[str, str]]:
    """What a plan does with each module, and what it leaves alone."""
    notes: dict[str, tuple[str, str]] = {}
    for miss in made.near_misses if made else ():
        if miss.path is not None:
            notes[miss.path] = ("near", _after(notes.get(miss.path), "near", f"{miss.patch}: {miss.reason}"))
    for swap in made.swaps if made else ():
        told = f"{swap.patch.name}: {swap.patch.why}"
        notes[swap.path] = ("swapped", _after(notes.get(swap.path), "swapped", told))
    return notes


def _after(before: tuple[str, str] | None, state: str, note: str) -> str:
    """Several patches may fit one module; those in force hide those that are not."""
    return f"{before[1]}; {note}" if before and before[0] == state else note
