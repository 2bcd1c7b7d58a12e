"""Which inputs to hold a graph against: other data, other branches, other sizes, all such as eager itself accepts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.verification.branch_recorder import Decisions
from onnxpatch.verification.eager import Answer, Eager
from onnxpatch.verification.hints import SizeHints, size_hints
from onnxpatch.verification.oracle import Asking
from onnxpatch.verification.probe import Limits, Probe, Refusals
from onnxpatch.verification.probe_data import variants
from onnxpatch.verification.size_branches import size_branches
from onnxpatch.verification.size_search import SizeSearch

_TRIES = 4  # other data tried for a branch, whatever it takes


# Whole numbers and flags go into indices and masks, where a graph may be wrong without any branch.
_ALWAYS = ("whole numbers + 1", "flags flipped")
_MORE = ("whole numbers zero", "whole numbers negated", "whole numbers reversed", "flags all set", "no flag set")


class ProbeSearch:
    """Finds probes for one model: `find()` once; `at(sizes)` for a size that someone else asks for."""

    def __init__(
        self,
        eager: Eager,
        inputs: Inputs,
        dims: Sequence[DynamicDim],
        limits: Limits,
        hints: SizeHints | None = None,
    ) -> None:
        self.eager, self.inputs, self.dims, self.limits = eager, inputs, dims, limits
        self.asking = Asking(eager, inputs, dims, limits)
        self.hints = hints or size_hints(eager.model)

    @property
    def refusals(self) -> Refusals:
        return self.asking.refusals

    def at(self, sizes: Mapping[str, int], kind: str = "size", far: bool = False) -> Probe | None:
        """A probe at these sizes (those not named stay the example's), or None where eager refuses them."""
        return self.asking.at(sizes, kind, far=far)

    def accepted(self) -> list[Probe]:
        """Every size asked for so far that eager accepted."""
        return self.asking.accepted()

    def find(self, example: Answer, decisions: Decisions | None = None) -> list[Probe]:
        """The example first, then other data, then sizes, the most telling first.

        decisions: what eager decides on the example, where the caller has watched it already.
        """
        first = self.asking.start(example)
        watched = decisions or self.eager.decisions(first.values, sizes=bool(self.dims))
        probes = [first, *self._other_data(), *self._branches(first, watched)]
        decided = list(size_branches(self.asking, self.hints, watched)) if watched else []
        sizes = _unique([*decided, *SizeSearch(self.asking, self.hints).probes()])
        room = max(self.limits.probes - len(probes), min(4, self.limits.probes // 2))
        return probes + sizes[:room]

    def _other_data(self) -> Iterator[Probe]:
        """Not where time is short: other sizes bring other data as well."""
        probe = self.asking.other_data() if not self.dims or self.asking.affords() else None
        if probe:
            yield probe

    def _branches(self, first: Probe, example: Decisions | None, most: int = 8) -> Iterator[Probe]:
        """Data under which the forward decides otherwise. Whole numbers and flags are varied in any case."""
        values, seen = first.values, {example.signature if example else ()}
        decides, tried, flipped = seen != {()}, 0, False
        finite, compared = not (example and example.asks_finite), example.compared if example else ()
        for label, changed in variants(values, finite, compared):
            if not most or (self.asking.spent() and (flipped or tried >= _TRIES)):
                return
            always = label in (_ALWAYS if self.asking.spent() else _ALWAYS + _MORE) and not _equal(changed, values)
            watched = self.eager.decisions(changed) if decides else None
            tried += decides or always
            if (decides and watched is None) or (not always and (watched is None or watched.signature in seen)):
                continue
            flips = watched is not None and watched.signature not in seen
            flipped |= flips
            answer = self.eager.ask(changed)
            if answer.accepted and (flips or self.asking.usable(answer)):
                most -= 1
                kind = "branch" if flips else "data"
                yield self.asking.kept(Probe(label, kind, first.sizes, changed, answer.outputs or (), answer.raw))
            seen |= {watched.signature} if watched else set()


def _unique(probes: Sequence[Probe]) -> list[Probe]:
    return list({id(probe): probe for probe in probes}.values())


def _equal(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True) if isinstance(x, torch.Tensor))
