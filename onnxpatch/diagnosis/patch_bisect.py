"""Bisects a plan for the fewest patches that make a difference, by trying parts of it (delta debugging).

plan a b c d e f g h, wrong because of f     a-d right, e-h wrong, e-f wrong, e right, f wrong   -> [f]
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from onnxpatch.patched import Patched
from onnxpatch.patching.match import FunctionPatch
from onnxpatch.patching.plan import Plan, Swap
from onnxpatch.process import undone

T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """One entry of a plan: a swap at a path, or a function patch, whose path is None."""

    patch: str
    path: str | None
    entry: Swap | FunctionPatch = dataclasses.field(compare=False, repr=False)


def steps_of(plan: Plan) -> list[Step]:
    """The entries of a plan, swaps first."""
    swaps = [Step(swap.patch.name, swap.path, swap) for swap in plan.swaps]
    return swaps + [Step(patch.name, None, (patch, found)) for patch, found in plan.functions]


@contextlib.contextmanager
def applied(plan: Plan, steps: Sequence[Step]) -> Iterator[Patched]:
    """Patch the model with only some entries of its plan inside the block."""
    wanted = {id(step.entry) for step in steps}
    swaps = [step.entry for step in steps if isinstance(step.entry, Swap)]
    functions = [step.entry for step in steps if not isinstance(step.entry, Swap)]
    assert len(wanted) == len(swaps) + len(functions)
    made = Patched(dataclasses.replace(plan, swaps=swaps, functions=functions))
    with undone(made.restore):
        yield made.apply()


def fewest(items: Sequence[T], bad: Callable[[Sequence[T]], bool], tries: int = 64) -> list[T]:
    """A smallest part of `items` for which `bad` is true, given that it is true for all of them.

    Tries halves, then quarters, and so on, and their complements: about 2 log2(n) tries for one guilty item. tries: the
    most calls of `bad`; where they are used up, the answer may have items that could be left out.
    """
    left, parts = list(items), 2
    while len(left) > 1 and tries > 0:
        chunks = _chunks(left, min(parts, len(left)))
        others = [[item for item in left if item not in chunk] for chunk in chunks]
        for smaller in [*chunks, *(others if len(chunks) > 2 else ())]:
            tries -= 1
            if smaller and bad(smaller):
                # After a complement one chunk less is left, so the chunks keep their size; after a chunk it starts
                # again with halves.
                left, parts = smaller, max(2, min(parts - 1, len(smaller))) if smaller in others else 2
                break
            if tries <= 0:
                return left
        else:
            if parts >= len(left):
                return left
            parts = min(2 * parts, len(left))
    return left


def _chunks(items: Sequence[T], count: int) -> list[list[T]]:
    # Chunks that differ by one at most, however many there are.
    edges = [round(i * len(items) / count) for i in range(count + 1)]
    return [list(items[a:b]) for a, b in itertools.pairwise(edges) if b > a]


def guilty(plan: Plan, wrong: Callable[[], bool], tries: int = 64) -> list[Step]:
    """The fewest entries of a plan with which `wrong()` is true; [] where it is false with all of them.

    plan: of the unpatched model. wrong: called while the model is patched with a part of the plan.
    """

    def bad(steps: Sequence[Step]) -> bool:
        with applied(plan, steps):
            return wrong()

    steps = steps_of(plan)
    return fewest(steps, bad, tries) if steps and bad(steps) else []
