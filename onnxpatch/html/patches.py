"""Patches as cards: what each stands in for, where, and its code before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnxpatch.html.code import Pair, pair
from onnxpatch.patching.plan import Plan, Swap
from onnxpatch.patching.registry import Patch

_NAMED = 6


@dataclass
class Card:
    """One patch. where: the modules that it is on, or what it stands in for."""

    patch: Patch
    where: str
    pair: Pair


def cards(patches: Sequence[Patch], made: Plan | None) -> list[Card]:
    """In the order given; the code before is that of the first module which the plan has the patch on."""
    on: dict[str, list[Swap]] = {}
    for swap in made.swaps if made else ():
        on.setdefault(swap.patch.name, []).append(swap)
    return [_card(patch, on.get(patch.name, [])) for patch in patches]


def _card(patch: Patch, swaps: list[Swap]) -> Card:
    if not swaps:
        return Card(patch, shortened(patch.targets), pair(patch))
    return Card(patch, shortened([swap.path or "(root)" for swap in swaps]), pair(patch, swaps[0].module))


def shortened(names: Sequence[str]) -> str:
    """The first few, and how many more."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
