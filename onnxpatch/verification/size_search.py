"""The search over sizes: chosen to break things (1, 2, odd, the trained size, non-square, larger), found by asking.

A model which wants multiples of 14, square images or two sizes that move together gets probes it can run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.verification.hints import SizeHints
from onnxpatch.verification.oracle import Asking
from onnxpatch.verification.probe import Probe


@dataclass
class SizeSearch:
    """Sizes of one model that eager accepts. `probes()` asks for them, the most telling first."""

    asking: Asking
    hints: SizeHints

    def __post_init__(self) -> None:
        self.dims, self.at = self.asking.dims, self.asking.at

    def probes(self) -> list[Probe]:
        """Every dimension alone, several together, and those that eager takes together only."""
        found = self._each_alone()
        together = list(self._coupled([dim for dim in self.dims if not found[dim.name]]))
        joint = list(self._joint(found))
        singles = _interleaved(list(found.values()))
        return _unique([*joint[:2], *together, *_interleaved([singles, joint[2:]])])

    def _each_alone(self) -> dict[str, list[Probe]]:
        """Accepted sizes of each dimension, the others as in the example; in turns: time may run out."""
        found: dict[str, list[Probe]] = {dim.name: [] for dim in self.dims}
        for turn in itertools.zip_longest(*(self._alone(dim) for dim in self.dims)):
            for dim, probe in zip(self.dims, turn, strict=True):
                if probe and all(probe is not known for known in found[dim.name]):
                    found[dim.name].append(probe)
        for name in self.asking.refused_alone:
            if all(probe.sizes[name] == 1 for probe in found[name]):
                found[name] = []  # broadcasting takes 1 by accident: this size moves only together with another
        return found

    def _alone(self, dim: DynamicDim) -> Iterator[Probe | None]:
        """What eager says to other sizes of one dimension, the step found first."""
        step = 1
        for n in self._upwards(dim):
            up = self.at({dim.name: n})
            yield up
            if up:
                step = n - dim.size
                break
        else:
            yield self._needed([dim])
        wanted = dict.fromkeys(self._wanted(dim, step))
        yield from (self.at({dim.name: n}) for n in wanted if n > 0 and n != dim.size)

    def _needed(self, dims: Sequence[DynamicDim]) -> Probe | None:
        """Where time is too short for a larger size, a smaller one all the same: no dimension goes unprobed."""
        if not self.asking.left_out:
            return None
        steps = dict.fromkeys([*self.hints.steps[:2], 1, 2, 4, 8, 16])
        wishes = [{d.name: d.size // 2 for d in dims}, *({d.name: d.size - k for d in dims} for k in steps)]
        wishes += [{d.name: 1 for d in dims}, *({d.name: d.size + k for d in dims} for k in steps)]
        example = {d.name: d.size for d in dims}
        possible = [w for w in wishes if min(w.values()) > 0 and w != example][: self.asking.limits.least]
        return next(filter(None, (self.at(wish, must=True) for wish in possible)), None)

    def _upwards(self, dim: DynamicDim) -> Iterator[int]:
        n = dim.size
        steps = {1, 2, 4, 8, 16, 32, n, *self.hints.steps, *(d for d in range(3, min(n, 65)) if n % d == 0)}
        yield from (n + step for step in sorted(steps)[:12])

    def _wanted(self, dim: DynamicDim, step: int) -> Iterator[int]:
        """In order of how much they tell: the trained size, much larger, one less, 1, 2, past every constant."""
        hints, n = self.hints, dim.size
        near = [v for v in hints.native if n // 8 <= v <= 4 * n]
        yield from (*near[:1], 3 * n + step if step == 1 else n + 2 * step, *near[1:2])
        yield from (n - step, 1, 2)
        compared = [v for v in hints.thresholds if v <= 4 * n + 8]
        yield from (c + k for c in compared[:3] for k in (1, 0))
        yield from (n // 2, 3, 2 * n, *near[2:4], n + 3 * step)

    def _coupled(self, stuck: Sequence[DynamicDim]) -> Iterator[Probe]:
        """Sizes that eager takes only together: equal ones, proportional ones, all of them."""
        for group in self._groups(stuck):
            kept = 0
            for factor in (1, 2, 4, 8, 16, 32, *self.hints.steps):
                probe = self.at({dim.name: dim.size + share * factor for dim, share in group})
                if probe:
                    yield probe
                    kept += 1
                if kept == 2:
                    break
            shared = {dim.name: dim.size - share for dim, share in group}
            smaller = self.at(shared) if kept else self._needed([dim for dim, _ in group])
            if smaller:
                yield smaller

    def _groups(self, stuck: Sequence[DynamicDim]) -> Iterator[list[tuple[DynamicDim, int]]]:
        """Dimensions with the share of a common step that each takes."""
        for dim in stuck:
            same = [(other, 1) for other in self.dims if other.size == dim.size]
            if len(same) > 1 and dim is next(d for d in stuck if d.size == dim.size):
                yield same
        for dim in stuck:
            for other in self.dims:
                small, large = sorted((dim, other), key=lambda d: d.size)
                if small.size < large.size and large.size % small.size == 0:
                    yield [(small, 1), (large, large.size // small.size)]
        if len(self.dims) > 1 and stuck:
            yield [(dim, dim.size) for dim in self.dims]

    def _joint(self, found: Mapping[str, list[Probe]]) -> Iterator[Probe]:
        """Several dimensions at once: all other than traced, all small, the trained size, its area in another form."""
        free = [dim for dim in self.dims if found[dim.name]]
        wishes: list[dict[str, int]] = []
        if len(free) > 1:
            for place in (0, 1, 2):
                wishes.append({d.name: found[d.name][min(place, len(found[d.name]) - 1)].sizes[d.name] for d in free})
        wishes += self._trained()
        wishes += [{a.name: b.size, b.name: a.size} for a, b in self._image_pairs() if a.size != b.size]
        yield from filter(None, (self.at(wish) for wish in wishes))

    def _image_pairs(self) -> list[tuple[DynamicDim, DynamicDim]]:
        """Neighbouring axes of one input that both may change, the first axis (the batch) left out."""
        places = {(leaf, axis): dim for dim in self.dims for leaf, axis, _ in dim.places if axis}
        pairs = [(dim, places[leaf, axis + 1]) for (leaf, axis), dim in places.items() if (leaf, axis + 1) in places]
        return [(a, b) for a, b in pairs if a is not b]

    def _trained(self) -> list[dict[str, int]]:
        pairs = self._image_pairs()
        native = self.hints.native[:3]
        square = [{a.name: v, b.name: v} for a, b in pairs for v in native]
        area = [{a.name: v // 2, b.name: 2 * v} for a, b in pairs for v in native[:1] if v % 2 == 0]
        return square + area


def _interleaved(lists: Sequence[Sequence[Probe]]) -> list[Probe]:
    longest = max((len(one) for one in lists), default=0)
    return [one[i] for i in range(longest) for one in lists if i < len(one)]


def _unique(probes: Iterable[Probe]) -> list[Probe]:
    return list({id(probe): probe for probe in probes}.values())
