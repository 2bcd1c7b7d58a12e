"""Which inputs to hold a graph against: other sizes, other data, all of them such as eager itself accepts.

Sizes are chosen to break things (1, 2, odd, the trained size, non-square, larger) and found by asking eager, so that a
model which wants multiples of 14, square images or two sizes that move together gets probes it can run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from onnxpatch.arguments.dims import DynamicDim
from onnxpatch.arguments.inputs import Inputs
from onnxpatch.checking.hints import SizeHints, size_hints
from onnxpatch.checking.probe import Limits, Probe, Refusals, shown
from onnxpatch.checking.probe_data import FILLS, drawn, variants
from onnxpatch.checking.reference import Answer, Eager


@dataclass
class ProbeSearch:
    """Finds probes for one model: `find()` once; `at(sizes)` for a size that someone else asks for."""

    eager: Eager
    inputs: Inputs
    dims: Sequence[DynamicDim]
    limits: Limits
    hints: SizeHints | None = None
    refusals: Refusals = field(default_factory=Refusals)

    def __post_init__(self) -> None:
        self._generator = torch.Generator().manual_seed(20)
        self._known: dict[tuple[int, ...], Probe | None] = {}
        self._asked = 0
        self._held = 0
        self._finite = True
        if self.hints is None:
            self.hints = size_hints(self.eager.model)

    # -------------------------------------------------------------- the whole set
    def find(self, example: Answer) -> list[Probe]:
        """The example first, then other data, then sizes, the most telling first."""
        values = self.inputs.values()
        start = {dim.name: dim.size for dim in self.dims}
        self._finite = example.finite
        first = Probe("example", "example", start, values, example.outputs or (), example.raw)
        self._hold(first)
        probes = [first, *self._data(values, start)]
        sizes = self._sizes()
        room = max(self.limits.probes - len(probes), min(4, self.limits.probes // 2))
        return probes + sizes[:room]

    def _data(self, values: list[Any], start: dict[str, int]) -> Iterator[Probe]:
        other = self._other_data(values)
        answer = self.eager.ask(other)
        if self._usable(answer):
            yield self._kept(Probe("other data", "data", start, other, answer.outputs or (), answer.raw))
        yield from self._branches(values, start)

    def _other_data(self, values: list[Any]) -> list[Any]:
        return [drawn(v, v.shape, self._generator) if isinstance(v, torch.Tensor) else v for v in values]

    def _branches(self, values: list[Any], start: dict[str, int], most: int = 8) -> Iterator[Probe]:
        """Data under which the forward decides otherwise. Whole numbers and flags are varied in any case."""
        example = self.eager.decisions(values)
        seen = {example.signature if example else ()}
        decides = seen != {()}
        for label, changed in variants(values, finite=not (example and example.asks_finite)):
            if self._spent() or not most:
                return
            always = label in ("whole numbers + 1", "flags flipped") and not _equal(changed, values)
            watched = self.eager.decisions(changed) if decides else None
            if (decides and watched is None) or (not always and (watched is None or watched.signature in seen)):
                continue
            flips = watched is not None and watched.signature not in seen
            answer = self.eager.ask(changed)
            if answer.accepted and (flips or self._usable(answer)):
                most -= 1
                kind = "branch" if flips else "data"
                yield self._kept(Probe(label, kind, start, changed, answer.outputs or (), answer.raw))
            seen |= {watched.signature} if watched else set()

    # -------------------------------------------------------------- one size
    def at(self, sizes: Mapping[str, int], kind: str = "size") -> Probe | None:
        """A probe at these sizes (those not named stay the example's), or None where eager refuses them."""
        full = {dim.name: sizes.get(dim.name, dim.size) for dim in self.dims}
        key = tuple(full.values())
        if key not in self._known:
            allowed = all(dim.allows(full[dim.name]) for dim in self.dims) and not self._too_large(full)
            self._known[key] = self._ask(full, kind) if allowed else None
        return self._known[key]

    def accepted(self) -> list[Probe]:
        """Every size asked for so far that eager accepted."""
        return [probe for probe in self._known.values() if probe]

    def _ask(self, sizes: dict[str, int], kind: str) -> Probe | None:
        error = ""
        for fill in FILLS if self._structured() else FILLS[:1]:
            if self._spent(self.limits.least):
                return None
            values = self._filled(sizes, fill)
            self._asked += 1
            answer = self.eager.ask(values)
            if self._usable(answer):
                return self._kept(Probe(shown(sizes), kind, sizes, values, answer.outputs or (), answer.raw))
            error = error or answer.error or "the output is not finite there"
        self.refusals.add(sizes, error)
        return None

    def _filled(self, sizes: Mapping[str, int], fill: Callable[..., torch.Tensor]) -> list[Any]:
        values = []
        for leaf in self.inputs.leaves:
            shape = self.shape_of(leaf.index, sizes)
            values.append(fill(leaf.value, shape, self._generator) if leaf.is_tensor else leaf.value)
        return values

    def shape_of(self, index: int, sizes: Mapping[str, int]) -> list[int]:
        """The shape of one leaf at these sizes."""
        value = self.inputs.leaves[index].value
        shape = list(value.shape) if isinstance(value, torch.Tensor) else []
        for dim in self.dims:
            for leaf, axis, function in dim.places:
                if leaf == index:
                    shape[axis] = int(function(sizes[dim.name]))
        return shape

    def _structured(self) -> bool:
        """Whether an input's values may have to fit its size: whole numbers, flags, masks in floats."""
        tensors = [leaf.value for leaf in self.inputs.leaves if leaf.is_tensor]
        return any(not t.is_floating_point() or bool((t == t.round()).all()) for t in tensors)

    def _usable(self, answer: Answer) -> bool:
        return answer.accepted and (answer.finite or not self._finite)

    def _too_large(self, sizes: Mapping[str, int]) -> bool:
        total = sum(math.prod(self.shape_of(leaf.index, sizes)) for leaf in self.inputs.leaves if leaf.is_tensor)
        now = sum(leaf.value.numel() for leaf in self.inputs.leaves if leaf.is_tensor)
        return total > max(self.limits.growth * now, 1 << 16)

    def _kept(self, probe: Probe) -> Probe:
        self._hold(probe)
        return probe

    def _hold(self, probe: Probe) -> None:
        tensors = [
            *(t for t in probe.expected if t is not None),
            *(v for v in probe.values if isinstance(v, torch.Tensor)),
        ]
        self._held += sum(t.numel() * t.element_size() for t in tensors)

    def _spent(self, least: int = 0) -> bool:
        limits = self.limits
        late = self.eager.seconds > limits.seconds and self._asked >= least
        return self._asked >= limits.questions or late or self._held > limits.bytes

    # -------------------------------------------------------------- the search
    def _sizes(self) -> list[Probe]:
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
        for name, accepted in found.items():
            if all(probe.sizes[name] == 1 for probe in accepted):
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
        wanted = dict.fromkeys(self._wanted(dim, step))
        yield from (self.at({dim.name: n}) for n in wanted if n > 0 and n != dim.size)

    def _upwards(self, dim: DynamicDim) -> Iterator[int]:
        n = dim.size
        steps = {1, 2, 4, 8, 16, 32, n, *self._steps(), *(d for d in range(3, min(n, 65)) if n % d == 0)}
        yield from (n + step for step in sorted(steps)[:12])

    def _steps(self) -> tuple[int, ...]:
        return self.hints.steps if self.hints else ()

    def _wanted(self, dim: DynamicDim, step: int) -> Iterator[int]:
        """In order of how much they tell: the trained size, much larger, one less, 1, 2, past every constant."""
        hints, n = self.hints or SizeHints((), (), ()), dim.size
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
            for factor in (1, 2, 4, 8, 16, 32, *self._steps()):
                probe = self.at({dim.name: dim.size + share * factor for dim, share in group})
                if probe:
                    yield probe
                    kept += 1
                if kept == 2:
                    break
            smaller = self.at({dim.name: dim.size - share for dim, share in group}) if kept else None
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
        native = (self.hints.native if self.hints else ())[:3]
        square = [{a.name: v, b.name: v} for a, b in pairs for v in native]
        area = [{a.name: v // 2, b.name: 2 * v} for a, b in pairs for v in native[:1] if v % 2 == 0]
        return square + area


def _equal(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True) if isinstance(x, torch.Tensor))


def _interleaved(lists: Sequence[Sequence[Probe]]) -> list[Probe]:
    longest = max((len(one) for one in lists), default=0)
    return [one[i] for i in range(longest) for one in lists if i < len(one)]


def _unique(probes: Iterable[Probe]) -> list[Probe]:
    return list({id(probe): probe for probe in probes}.values())
