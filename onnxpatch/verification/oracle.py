"""Asking eager at other sizes, within limits of time, memory and number of questions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from onnxpatch.inputs.dims import DynamicDim, shape_at
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.verification.eager import Answer, Eager
from onnxpatch.verification.probe import Limits, Probe, Refusals, shown
from onnxpatch.verification.probe_data import FILLS, drawn

_FURTHEST = 1 << 24  # elements of all inputs together
_LONGEST = 0.5  # seconds that one question about a size far beyond the example may take by the worst reckoning


@dataclass
class Asking:
    """One model, one example call, and what eager has answered so far: no size is asked for twice."""

    eager: Eager
    inputs: Inputs
    dims: Sequence[DynamicDim]
    limits: Limits
    refusals: Refusals = field(default_factory=Refusals)

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(20)
        self.left_out: set[tuple[int, ...]] = set()
        self.refused_alone: set[str] = set()  # dimensions with a size that eager refuses, all others being as given
        self._known: dict[tuple[int, ...], Probe | None] = {}
        self._others: list[Probe | None] = []
        self._asked = self._held = 0
        self._finite = True
        self._seconds = 0.0  # of the example: what larger inputs take is reckoned from it
        self._elements = sum(leaf.value.numel() for leaf in self.inputs.leaves if leaf.is_tensor)

    def start(self, example: Answer) -> Probe:
        """The example's own probe; what is asked afterwards is measured by it."""
        self._finite, self._seconds = example.finite, example.seconds
        sizes = {dim.name: dim.size for dim in self.dims}
        return self.kept(Probe("example", "example", sizes, self.inputs.values(), example.outputs or (), example.raw))

    # -------------------------------------------------------------- one size
    def at(self, sizes: Mapping[str, int], kind: str = "size", must: bool = False, far: bool = False) -> Probe | None:
        """A probe at these sizes (those not named stay the example's), or None where eager refuses them.

        must: ask even when time is up. far: there is a reason to go far beyond the example, as far as time allows.
        What was left out for lack of time may be asked for again.
        """
        full = {dim.name: sizes.get(dim.name, dim.size) for dim in self.dims}
        key = tuple(full.values())
        if key not in self._known:
            allowed = all(dim.allows(full[dim.name]) for dim in self.dims)
            if allowed and self._too_large(full) and not (far and self._within_reach(full)):
                return None
            if allowed and not self._may(full, must):
                self.left_out.add(key)
                return None
            self._known[key] = self._ask(full, kind) if allowed else None
            self.left_out.discard(key)
        return self._known[key]

    def accepted(self) -> list[Probe]:
        """Every size asked for so far that eager accepted."""
        return [probe for probe in self._known.values() if probe]

    def _ask(self, sizes: dict[str, int], kind: str) -> Probe | None:
        error = ""
        for fill in FILLS if self._structured() else FILLS[:1]:
            values = self._filled(sizes, fill)
            self._asked += 1
            answer = self.eager.ask(values)
            if self.usable(answer):
                return self.kept(Probe(shown(sizes), kind, sizes, values, answer.outputs or (), answer.raw))
            error = error or answer.error or "the output is not finite there"
        self.refusals.add(sizes, error)
        moved = [dim.name for dim in self.dims if sizes[dim.name] != dim.size]
        self.refused_alone |= set(moved) if len(moved) == 1 else set()
        return None

    def _filled(self, sizes: Mapping[str, int], fill: Callable[..., torch.Tensor]) -> list[Any]:
        values = []
        for leaf in self.inputs.leaves:
            shape = shape_at(leaf, self.dims, sizes)
            values.append(fill(leaf.value, shape, self.generator) if leaf.is_tensor else leaf.value)
        return values

    def _structured(self) -> bool:
        """Whether an input's values may have to fit its size: whole numbers, flags, masks in floats."""
        tensors = [leaf.value for leaf in self.inputs.leaves if leaf.is_tensor]
        return any(not t.is_floating_point() or bool((t == t.round()).all()) for t in tensors)

    # -------------------------------------------------------------- the example's sizes
    def other_data(self) -> Probe | None:
        """Other values of the example's kind, at its sizes; asked for once."""
        if not self._others:
            self._others.append(self._other_data())
        return self._others[0]

    def _other_data(self) -> Probe | None:
        values = self.inputs.values()
        other = [drawn(v, v.shape, self.generator) if isinstance(v, torch.Tensor) else v for v in values]
        answer = self.eager.ask(other)
        sizes = {dim.name: dim.size for dim in self.dims}
        if not self.usable(answer):
            return None
        return self.kept(Probe("other data", "data", sizes, other, answer.outputs or (), answer.raw))

    # -------------------------------------------------------------- limits
    def usable(self, answer: Answer) -> bool:
        return answer.accepted and (answer.finite or not self._finite)

    def spent(self) -> bool:
        """Whether no more may be asked."""
        return self._full() or self.eager.seconds > self.limits.seconds

    def _full(self) -> bool:
        return self._asked >= self.limits.questions or self._held > self.limits.bytes

    def affords(self, sizes: Mapping[str, int] | None = None) -> bool:
        """Whether there is time for these sizes (None: the example's), reckoned by their elements."""
        grown = self._volume(sizes) / max(1, self._elements) if sizes else 1.0
        return self.eager.seconds + self._seconds * grown <= self.limits.seconds

    def _may(self, sizes: Mapping[str, int], must: bool) -> bool:
        if self.affords(sizes) and not self.spent():
            return True
        return must and not self._full()

    def _volume(self, sizes: Mapping[str, int]) -> int:
        return sum(math.prod(shape_at(leaf, self.dims, sizes)) for leaf in self.inputs.leaves if leaf.is_tensor)

    def _too_large(self, sizes: Mapping[str, int]) -> bool:
        return self._volume(sizes) > max(self.limits.growth * self._elements, 1 << 16)

    def _within_reach(self, sizes: Mapping[str, int]) -> bool:
        """Whether a model whose time and memory grow as the square of its input, as attention's do, may be asked."""
        volume = self._volume(sizes)
        grown = volume / max(1, self._elements)
        left = self.limits.seconds - self.eager.seconds
        return volume <= _FURTHEST and self._seconds * max(1.0, grown) ** 2 <= max(left, _LONGEST)

    def kept(self, probe: Probe) -> Probe:
        """The probe itself; the memory that it holds is counted."""
        tensors = [
            *(t for t in probe.expected if t is not None),
            *(v for v in probe.values if isinstance(v, torch.Tensor)),
        ]
        self._held += sum(t.numel() * t.element_size() for t in tensors)
        return probe
