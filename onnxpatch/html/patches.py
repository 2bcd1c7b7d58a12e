"""The cards of a page that show patches: the modules that each applies to, and the code before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnxpatch.html.code import Pair, pair
from onnxpatch.patching.plan import Plan, Swap
from onnxpatch.patching.registry import Patch

_MOST_NAMES = 6


@dataclass
class Card:
    """One patch. where: paths of the modules that it applies to, or its targets where it applies to none."""

    patch: Patch
    where: str
    pair: Pair


def cards(patches: Sequence[Patch], plan: Plan | None) -> list[Card]:
    """A card for each patch. The code before is that of the first module that the plan applies the patch to."""
    swaps: dict[str, list[Swap]] = {}
    for swap in plan.swaps if plan else ():
        swaps.setdefault(swap.patch.name, []).append(swap)
    return [_card(patch, swaps.get(patch.name, [])) for patch in patches]


def _card(patch: Patch, swaps: list[Swap]) -> Card:
    if not swaps:
        return Card(patch, shortened(patch.targets), pair(patch))
    return Card(patch, shortened([swap.path or "(root)" for swap in swaps]), pair(patch, swaps[0].module))


def shortened(names: Sequence[str]) -> str:
    """The first few names and the number of the others: `a, b and 3 more`."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
