"""`Reference`: the unpatched model's outputs in eager, at the example and at every probe.

What is found out before a file is there: whether a second identical call has another answer, and at which inputs the
file will be compared. A graph is one path through the forward. It is wrong where eager takes another path, and no
random input need show that:

    self.hidden = self.cell(x, self.hidden)      the second call starts from what the first one kept
    if x.sum() > 0: ...            other data of the same sign takes the same branch; x negated does not
    x[mask] = 0                    no branch, but other masks may be wrong: some are always tried
    if x.shape[1] > 512: ...       a size beyond the constant
    table[: x.shape[1]]            any other size

So probes are made from what eager was seen to do at the example (`branch_recorder`, `size_recorder`): other data by
`data_search`, sizes by `size_search`: those that the forward asks about, then any other. The budget is
shared: half for data, half for sizes, and a few runs beyond it for what would otherwise stay unproven.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from onnxpatch.errors import InputError
from onnxpatch.exporters.exported import remedy
from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.inputs.validate import check_data, check_dense
from onnxpatch.limits import peak_of_process
from onnxpatch.patching.forward_state import Snapshot
from onnxpatch.results.checks import Checked, Unproven
from onnxpatch.verification.beyond_inputs import changes_of_a_call
from onnxpatch.verification.branch_recorder import Decisions
from onnxpatch.verification.data_search import data_probes, equal_values
from onnxpatch.verification.data_variants import MAGNITUDES, counts_or_marks, rescaled
from onnxpatch.verification.eager import Answer, Eager, Flatten
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Budget, Probe, measures
from onnxpatch.verification.size_search import decided_sizes, size_probes

_SIZES = 8  # probes at other sizes, however many branches there are
_LAST_QUESTIONS = 24  # for a dimension without a probe at another size


def find_probes(oracle: Oracle, first: Probe, decisions: Decisions | None) -> list[Probe]:
    """The example first, then other data and branches, then other sizes, the most informative first.

    first: the example with eager's answer. decisions: the branches that eager takes at the example.
    """
    # If the example alone fills the budget, other sizes bring other values.
    other = oracle.other_data if not oracle.dims or oracle.affords_the_example else None
    probes = [first, *filter(None, [other]), *_searched(oracle, first, decisions or Decisions())]
    most = oracle.budget.probes
    if most > _SIZES:
        probes += _magnitudes(oracle, first)
    decided = dict.fromkeys(decided_sizes(oracle, decisions) if decisions is not None else ())
    room = max(most - len(probes), min(_SIZES, most // 2))
    free = dict[Probe, None]()
    sizes = size_probes(oracle)  # a generator: sizes beyond the number of probes are never run
    while len(free) < room and (probe := next(sizes, None)):
        free |= {probe: None} if probe not in decided else {}
    found = [*probes, *decided, *free]
    return [*found, *_unmoved(oracle, found)] if most > 1 else found


def _searched(oracle: Oracle, first: Probe, known: Decisions) -> list[Probe]:
    """No search where data decides nothing in the forward, and no input counts or marks anything."""
    shows = known.shows or known.steps or oracle.eager.draws
    # Most models take measurements alone, and nothing more is asked of these.
    shows = shows or (not all(map(measures, first.values)) and counts_or_marks(first.values))
    return data_probes(oracle, first, known) if shows else []


def _unmoved(oracle: Oracle, found: Sequence[Probe]) -> Iterator[Probe]:
    """A probe for each dimension that no probe so far moves: alone, or with the dimensions of the same size.

    Without one the dimension would be unproven.
    """
    for dim in oracle.dims:
        if oracle.moved_by(found, dim):
            continue
        known = next((probe for probe in oracle.accepted() if oracle.moved_by([probe], dim)), None)
        probe = known or _moving(oracle, dim)
        if probe:
            yield probe


def _moving(oracle: Oracle, dim: DynamicDim) -> Probe | None:
    n = dim.size
    oracle.reserve(_LAST_QUESTIONS)
    together = [other.name for other in oracle.dims if other.size == n]
    # One off shows most; the others suit models that want even sizes or multiples of 8.
    for size in dict.fromkeys([n + 1, n - 1, n // 2, 2 * n, n - 8, n + 8]):
        for names in ([dim.name], together):
            if size > 1 and (probe := oracle.at(dict.fromkeys(names, size), must=True)):
                return probe
    return None


def _magnitudes(oracle: Oracle, first: Probe) -> Iterator[Probe]:
    """Larger and smaller numbers: what overflows, or loses small terms, in the graph alone."""
    for label, values in (rescaled(first.values, factor) for factor in MAGNITUDES):
        if equal_values(values, first.values) or not oracle.affords_the_example:
            continue
        answer = oracle.eager.ask(values)
        if answer.outputs is not None and answer.finite:
            yield oracle.remember(answer.probe(label, "data", first.sizes, values))


class Reference:
    """What the unpatched model answers, here and at other sizes.

    probes: the example first, inputs of the caller's last. The model is asked when the reference is made, and again at
    sizes that a dropped guard names; it has to be unpatched at both times.
    decisions: the Python branches that it takes at the example; None where they could not be watched. names: of the
    tensors of its output, where a cache is among them. changes: what a call keeps, where the next one answers
    otherwise. kept: the same where it does not.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        inputs: Inputs,
        dims: Sequence[DynamicDim],
        budget: Budget,
        *,
        flatten: Flatten | None = None,
        data: Sequence[object] = (),
        sizes: Mapping[str, Sequence[int]] | None = None,
        state: Snapshot | None = None,
    ) -> None:
        """flatten: an output -> its tensors in the graph's order; data: the caller's inputs, each args or (args,
        kwargs); sizes: sizes to compare at in any case, by the dimension's name; state: the model's, where it was taken
        already. Raises InputError where eager refuses one of them."""
        check_data(data, sizes)
        check_dense(inputs.values())
        start = time.perf_counter()
        self.inputs, self.dims, self.budget = inputs, dims, budget
        self.eager = Eager(model, inputs, flatten, state)
        if budget.max_memory is not None:
            self.eager.limits = budget.max_memory, math.inf
        # Before the oracle is made: what the example costs decides which sizes it can afford.
        operations, self.decisions = self.eager.operations(inputs.as_given(), sizes=bool(dims))
        example = self._example()
        self.eager.limits = budget.limits(self.eager.example_bytes, self.eager.run.made)
        if example.stopped:
            raise InputError(f"the example itself takes more than max_memory={budget.max_memory:g}: {example.stopped}")
        if example.outputs is None:
            raise InputError(f"the model itself refuses the example: {example.error}{remedy(example.error or '')}")
        self.names = self.eager.names
        # Most models change nothing, and have answered alike twice already.
        known = self.eager.answered_alike(example)
        self.changes, self.kept = ([], []) if known else changes_of_a_call(self.eager, inputs.as_given(), example)
        given = [self._given(one, f"data[{i}]") for i, one in enumerate(data)]
        self.oracle = Oracle(self.eager, inputs, dims, budget, operations)
        if self.decisions is not None and self.decisions.converts:
            self.decisions.asks_finite |= self.oracle.mentioned.finite
        found = find_probes(self.oracle, self.oracle.start(example), self.decisions)
        asked = [self._asked(name, size) for name, listed in (sizes or {}).items() for size in listed]
        self.probes = [*found, *(probe for probe in asked if probe not in found), *given]
        self.seconds = time.perf_counter() - start

    def _example(self) -> Answer:
        """The answer to the example. What the call changed stays, for the next one to be compared with it."""
        values = self.inputs.as_given()
        answer = self.eager.ask(values, grown=math.inf, restored=False)
        self.eager.example_bytes = max(1, self.eager.run.peak)
        if answer.accepted or answer.stopped or not self.eager.counted:
            return answer
        self.eager.counted = False  # a model with a dispatch mode of its own, say, does not run in another
        uncounted = self.eager.ask(values, restored=False)
        self.eager.counted = not uncounted.accepted
        return uncounted

    @property
    def bytes(self) -> dict[str, float]:
        """What runs of the model took and may take, as in `Report.memory`."""
        process = peak_of_process()
        return {
            "example": float(self.eager.example_bytes),
            "peak": float(self.eager.peak),
            "limit": self.eager.limits[0],
            "left_out": float(len(self.oracle.too_large)),
            **({"process": float(process)} if process else {}),
        }

    def flatten(self, how: Flatten) -> None:
        """Compare outputs in another form from now on. The known answers are converted."""
        if how is self.eager.flatten:
            return
        self.eager.flatten = how
        for probe in {*self.probes, *self.oracle.accepted()}:
            probe.expected = self.eager.flat(probe.raw)

    def also_at(self, sizes: Iterable[Mapping[str, int]]) -> None:
        """Add probes at these sizes, if eager accepts them. Dimensions not named are as in the example."""
        found = [self.oracle.at(one, must=True, far=True) for one in sizes]
        self.probes = list(dict.fromkeys((*self.probes, *filter(None, found))))

    def unproven(self, checks: Sequence[Checked]) -> list[Unproven]:
        """The dynamic dimensions of which no other size has a verdict, with what would prove each of them."""
        known = [check.sizes for check in checks if check.status in ("right", "wrong", "refused")]
        return [
            Unproven(dim.name, dim.size, self._why_unproven(dim), self._proof_of(dim))
            for dim in self.dims
            if not self.oracle.is_moved(dim, {sizes[dim.name] for sizes in known if dim.name in sizes})
        ]

    def _why_unproven(self, dim: DynamicDim) -> str:
        refusal = self.oracle.refused_alone.get(dim.name) or self.oracle.first_refusal
        if refusal:
            return f"eager refuses the other sizes that were tried, such as {refusal}"
        if self.oracle.too_large:
            return f"other sizes were not tried: {next(iter(self.oracle.too_large.values()))}"
        if self.budget.over() or self.oracle.cut_short:
            return "max_seconds was reached before another size was compared"
        return "no other size was compared within max_probes and the budget"

    def _proof_of(self, dim: DynamicDim) -> str:
        names = {leaf.index: leaf.name for leaf in self.inputs.leaves}
        axes = ", ".join([f"axis {axis} of {names[leaf]}" for leaf, axis, _ in dim.places][:3])
        return f"data=[args] with inputs that the model accepts at another {dim.name} ({axes}) would prove it"

    def names_of_one_size(self) -> list[str]:
        """Notes on dimensions with two names of which eager takes equal sizes only, as `x + y` does."""
        answers = [(sizes, probe is not None) for sizes, probe in self.oracle.answers()]
        notes = []
        for one, other in itertools.combinations(self.dims, 2):
            pairs = [((sizes[one.name], sizes[other.name]), taken) for sizes, taken in answers]
            equal = [taken for (a, b), taken in pairs if a == b != one.size]
            # Size 1 fits others by broadcasting.
            unequal = [taken for (a, b), taken in pairs if a != b and 1 not in (a, b)]
            if one.size == other.size and any(equal) and len(unequal) > 1 and not any(unequal):
                both = f"{one.name!r} and {other.name!r}"
                notes.append(f"the model takes equal sizes of {both} only: give both one name in dynamic_shapes")
        return notes

    def _asked(self, name: str, size: int) -> Probe:
        """A probe at a size that the caller asks for. The other dimensions are as in the example."""
        names = [dim.name for dim in self.dims]
        if name not in names:
            raise InputError(
                f"sizes: there is no dynamic dimension {name!r}; there are {', '.join(names) or 'none'}: name it in "
                "dynamic_shapes"
            )
        probe = self.oracle.at({name: size}, must=True, far=True)
        if probe is None:
            raise InputError(f"sizes: {name}={size} cannot be compared: {self.oracle.reason({name: size})}")
        return probe

    def _given(self, one: Any, label: str) -> Probe:
        """A probe of the caller's input: (args, kwargs), or args alone."""
        # args may be a tuple of two as well; only a tuple and a dict are taken for args and kwargs.
        pair = isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], tuple) and isinstance(one[1], dict)
        args, kwargs = one if pair else (one, {})
        values = Inputs(self.eager.model, args, kwargs).values()
        if len(values) != len(self.inputs.leaves):
            raise InputError(f"{label} has {len(values)} values, the example {len(self.inputs.leaves)}")
        answer = self.eager.ask(values, grown=math.inf, restored=False)
        if answer.outputs is None:
            why = "the model itself refuses it" if not answer.stopped else "it takes more than max_memory allows"
            raise InputError(f"{label}: {why}: {answer.error}")
        shapes = {i: tuple(value.shape) for i, value in enumerate(values) if isinstance(value, torch.Tensor)}
        sizes = {dim.name: dim.size_of(shapes) for dim in self.dims}
        return answer.probe(label, "given", sizes, values)
