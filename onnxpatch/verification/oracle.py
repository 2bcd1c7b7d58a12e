"""`Oracle`: runs eager at other sizes and on other data, each once, within a budget.

    oracle.at({"h": 80})      a probe: the inputs at that size, and eager's outputs; None if eager refuses the size

The budget counts runs and estimated operations, not seconds: so every machine compares at the same sizes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from onnxpatch.inputs.dims import DynamicDim, shape_at
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.verification.eager import Answer, Eager, tells
from onnxpatch.verification.numbers_in_code import Mentioned, mentioned
from onnxpatch.verification.probe import Budget, Fill, Moves, Probe, drawn, fills

_FURTHEST = 1 << 24  # elements of all inputs together
_LONGEST = 2e10  # operations that one run far beyond the example may take, if its cost grows as the square
_SEARCH = 0.5  # of max_seconds, for the search: the export and the runs of the graph come after it
_ROOM_FOR_GUARDS = 1.5  # of the budget, together with what probes for dropped guards may take
_SMALL = 1 << 16  # elements of all inputs together: never too many
_QUICK = 1e9  # operations: a model with fewer may be run at much larger sizes


class Oracle:
    """The answers of eager for one model and one example call. No size is run twice.

    operations: of the example, by `_torch.dispatch_modes`. The cost of larger inputs is estimated from it.
    """

    def __init__(
        self, eager: Eager, inputs: Inputs, dims: Sequence[DynamicDim], budget: Budget, operations: float = 0.0
    ) -> None:
        self.eager, self.inputs, self.dims, self.budget = eager, inputs, dims, budget
        self.generator = torch.Generator().manual_seed(20)
        self.left_out: set[tuple[int, ...]] = set()
        self.refused_alone: dict[str, str] = {}  # by dimension: why eager refused another size of it alone
        self.refused, self.first_refusal = 0, ""
        self.too_large: dict[str, str] = {}  # by label: why eager was not run, though it may accept the input
        self.cut_short = False  # by max_seconds
        self._known: dict[tuple[int, ...], Probe | None] = {}
        self._asked = self._held = self._before = 0
        self._reserve = 0  # runs beyond the budget, for a dimension that no probe has moved yet
        self._finite = True
        self.example = {dim.name: dim.size for dim in dims}
        self._tensors = {leaf.index: leaf.value for leaf in inputs.leaves if isinstance(leaf.value, torch.Tensor)}
        self._elements = max(1, sum(tensor.numel() for tensor in self._tensors.values()))
        self._cost = operations / self._elements  # of one element
        self._growth = 6.0 if operations < _QUICK else 3.0

    @functools.cached_property
    def mentioned(self) -> Mentioned:
        """Numbers and sizes that the model mentions."""
        return mentioned(self.eager.model, self.eager.sides.functions)

    @functools.cached_property
    def inner(self) -> list[str]:
        """The dimensions inside, such as height and width, without the batch."""
        return [dim.name for dim in self.dims if any(axis for _, axis, _ in dim.places)]

    def start(self, example: Answer) -> Probe:
        """The probe of the example. Runs from here on count against the budget."""
        self._finite, self._before = example.finite, self.eager.elements
        return self.remember(example.probe("example", "example", self.example, self.inputs.as_given()))

    # -------------------------------------------------------------- one size
    def at(self, sizes: Mapping[str, int], kind: str = "size", must: bool = False, far: bool = False) -> Probe | None:
        """A probe at these sizes, or None if eager refuses them. Sizes not named are the example's.

        must: also when the budget is used up. far: also far beyond the example, if the budget allows it. A size that
        was left out for the budget may be asked for again.
        """
        full = {**self.example, **sizes}
        key = tuple(full.values())
        if key in self._known:
            return self._known[key]
        if format_sizes(full) in self.too_large:
            return None
        if not all(dim.allows(full[dim.name]) and dim.fills(full, self.example) for dim in self.dims):
            self._known[key] = None
            return None
        shapes = self._shapes(full)
        volume = sum(map(math.prod, shapes.values()))
        if volume > max(self._growth * self._elements, _SMALL) and not (far and self._within_reach(volume)):
            return None
        if not self._may(volume, must, _ROOM_FOR_GUARDS if kind == "guard" else 1.0):
            self.left_out.add(key)
            return None
        self.left_out.discard(key)
        probe = self._ask(full, shapes, kind)
        if format_sizes(full) not in self.too_large:
            self._known[key] = probe
        return probe

    def empty(self, dim: DynamicDim) -> Probe | None:
        """A probe without any of one dimension; None where that is not declared, or eager's answer there says nothing.

        An empty cache, say. An answer without elements, or with NaN, is one that no user needs.
        """
        sizes = {**self.example, dim.name: 0}
        if dim.size == 0 or not dim.may_be_empty or any(place.size.at(sizes) < 0 for place in dim.places) or self.late:
            return None
        shapes = self._shapes(sizes)
        answer = self.eager.ask(values := self._filled(shapes, drawn, self._moves(shapes)))
        outputs = [one for one in answer.outputs or () if one is not None]
        says = bool(outputs) and self.usable(answer) and all(one.numel() for one in outputs)
        return answer.probe(format_sizes({dim.name: 0}), "size", sizes, values) if says else None

    def reason(self, sizes: Mapping[str, int]) -> str:
        """Why `at` has no probe at these sizes."""
        full = {**self.example, **sizes}
        outside = [dim for dim in self.dims if not dim.allows(full[dim.name])]
        if outside:
            return f"dynamic_shapes allows {outside[0].name} from {outside[0].minimum} to {outside[0].maximum or 'any'}"
        if format_sizes(full) in self.too_large:
            return f"it takes more than max_memory allows: {self.too_large[format_sizes(full)]}"
        if tuple(full.values()) not in self._known:
            return "it needs more work or memory than the verification budget allows"
        moves = self._moves(shapes := self._shapes(full))
        answer = self.eager.ask(self._filled(shapes, fills(list(self._tensors.values()), moves)[0], moves))
        return f"the model itself refuses it: {answer.error or 'its output is not finite'}"

    def answers(self) -> list[tuple[dict[str, int], Probe | None]]:
        """(sizes, probe) of all sizes that were asked about; None where eager refused them."""
        return [(dict(zip(self.example, key, strict=True)), probe) for key, probe in self._known.items()]

    def accepted(self) -> list[Probe]:
        """Every probe so far."""
        return [probe for probe in self._known.values() if probe]

    def _ask(self, sizes: dict[str, int], shapes: Mapping[int, Sequence[int]], kind: str) -> Probe | None:
        error, odd, stopped = "", None, ""
        moves = self._moves(shapes)
        grown = math.prod(max(1.0, size / max(1, self.example[name])) for name, size in sizes.items())
        for fill in fills(list(self._tensors.values()), moves):
            values = self._filled(shapes, fill, moves)
            self._asked += 1
            answer = self.eager.ask(values, grown=grown)
            if self.usable(answer):
                return self.remember(answer.probe(format_sizes(sizes), kind, sizes, values))
            error, stopped = error or answer.error or "", stopped or answer.stopped
            if answer.outputs is not None and odd is None and not self._empties(values):
                odd = answer.probe(format_sizes(sizes), kind, sizes, values)
        if odd is not None:  # eager returns NaN or infinity at this size, so the graph has to
            return self.remember(odd)
        if stopped:
            self.too_large[format_sizes(sizes)] = stopped
        else:
            self._note_refusal(sizes, error)
        return None

    def _note_refusal(self, sizes: Mapping[str, int], error: str) -> None:
        self.first_refusal = self.first_refusal or f"{format_sizes(sizes)}: {error}"
        self.refused += 1
        moved = [name for name, size in sizes.items() if size != self.example[name]]
        if len(moved) == 1 and sizes[moved[0]] != 1:
            self.refused_alone.setdefault(moved[0], f"{format_sizes({moved[0]: sizes[moved[0]]})}: {error}")

    def _empties(self, values: Sequence[Any]) -> bool:
        """Whether lengths that are positive in the example became 0: the probe then causes the NaN of an empty mean."""
        whole = [i for i, tensor in self._tensors.items() if not tensor.is_floating_point() and tensor.numel()]
        return any(int(self._tensors[i].min()) > 0 and int(values[i].min()) <= 0 for i in whole if values[i].numel())

    def is_moved(self, dim: DynamicDim, sizes: Iterable[int]) -> bool:
        """Whether these sizes show that a dimension is dynamic.

        Size 1 alone does not if eager refuses the others: it is accepted by broadcasting.
        """
        others = {size for size in sizes if size != dim.size}
        return bool(others - {1}) or (bool(others) and dim.name not in self.refused_alone)

    def moved_by(self, probes: Iterable[Probe], dim: DynamicDim) -> bool:
        """Whether the probes move a dimension to another size, in the sense of `is_moved`."""
        return self.is_moved(dim, {probe.sizes[dim.name] for probe in probes if dim.name in probe.sizes})

    def _shapes(self, sizes: Mapping[str, int]) -> dict[int, list[int]]:
        """The shape of every tensor among the inputs at these sizes, by the leaf's index."""
        return {index: shape_at(self.inputs.leaves[index], self.dims, sizes) for index in self._tensors}

    def _moves(self, shapes: Mapping[int, Sequence[int]]) -> Moves:
        """(size in the example, new size) of every dynamic axis."""
        places = [(place.leaf, place.axis) for dim in self.dims for place in dim.places]
        return list(dict.fromkeys((self._tensors[leaf].shape[axis], shapes[leaf][axis]) for leaf, axis in places))

    def _filled(self, shapes: Mapping[int, Sequence[int]], fill: Fill, moves: Moves = ()) -> list[object]:
        leaves = self.inputs.leaves
        return [
            fill(leaf.value, shapes[leaf.index], self.generator, moves) if leaf.index in shapes else leaf.value
            for leaf in leaves
        ]

    # -------------------------------------------------------------- the example's sizes
    @functools.cached_property
    def other_data(self) -> Probe | None:
        """A probe with other values at the example's sizes; None if eager refuses them."""
        shapes = {index: tensor.shape for index, tensor in self._tensors.items()}
        other = self._filled(shapes, drawn)
        answer = self.eager.ask(other)
        if answer.stopped:
            self.too_large["other data"] = answer.stopped
        if not self.usable(answer):
            return None
        return self.remember(answer.probe("other data", "data", self.example, other))

    # -------------------------------------------------------------- the budget
    def usable(self, answer: Answer) -> bool:
        """Whether a graph can be compared with this answer: NaN and infinity in eager say nothing about a graph."""
        return answer.outputs is not None and (answer.finite or not self._finite)

    @property
    def spent(self) -> float:
        """The estimated operations of all runs so far."""
        return self._cost * (self.eager.elements - self._before)

    @property
    def half_spent(self) -> bool:
        """Whether half of the budget is spent: other data gets one half, other sizes the other."""
        return self.spent > self.budget.operations / 2

    @property
    def used_up(self) -> bool:
        """Whether the budget is used up, except for runs that every verification needs (`must`)."""
        return self._full or self.late or self.spent > self.budget.operations

    @property
    def late(self) -> bool:
        """Whether the share of max_seconds for the search is over."""
        self.cut_short |= self.budget.over(_SEARCH)
        return self.cut_short

    def reserve(self, questions: int) -> None:
        """Allow this many more runs, counted from now."""
        self._reserve = max(0, self._asked - self.budget.questions) + questions

    @property
    def _full(self) -> bool:
        return self._asked >= self.budget.questions + self._reserve or self._held > self.budget.bytes

    @property
    def affords_the_example(self) -> bool:
        """Whether the budget allows one more run at the example's size."""
        return self._may(self._elements)

    def _may(self, elements: int, must: bool = False, share: float = 1.0) -> bool:
        # Guards (share 1.5) get at least twice the example's work, however large the model is; with share 1 the second
        # is 0.
        room = max(share * self.budget.operations, (share - 1) * 4 * self._cost * self._elements)
        if self._full or (self.budget.over() if share > 1 else self.late):
            return False
        return must or self.spent + self._cost * elements <= room

    def affords(self, times: int) -> bool:
        """Whether the whole budget has room for one run of so many times the example's work."""
        return times * self._cost * self._elements <= self.budget.operations

    def _within_reach(self, elements: int) -> bool:
        """Whether an input of so many elements may be run if the cost grows as its square, as in attention."""
        cost = self._cost * elements * max(1.0, elements / self._elements)
        return elements <= _FURTHEST and cost <= max(self.budget.operations - self.spent, _LONGEST)

    def remember(self, probe: Probe) -> Probe:
        """Return the probe, and count the memory of its tensors."""
        if probe.taken is not None and tells(probe):
            self.eager.sides.keep(probe.taken)
        for tensor in (*probe.expected, *probe.values):
            if isinstance(tensor, torch.Tensor):
                self._held += tensor.numel() * tensor.element_size()
        return probe


def format_sizes(sizes: Mapping[str, int]) -> str:
    """`b=3, h=17`."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "the example's sizes"
