"""`Reference`: the unpatched model's outputs in eager, at the example and at every probe."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from onnxpatch.errors import InputError
from onnxpatch.exporters.exported import remedy
from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.inputs.validate import check_data, check_dense
from onnxpatch.onnxfile.limits import peak_of_process
from onnxpatch.patching.forward_state import Snapshot
from onnxpatch.verification.eager import Answer, Eager, Flatten
from onnxpatch.verification.first_call import changes_of_a_call
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Budget, Probe
from onnxpatch.verification.probe_search import find_probes


class Reference:
    """What the unpatched model answers, here and at other sizes.

    probes: the example first, inputs of the caller's last. The model is asked when the reference is made, and again at
    sizes that a dropped guard names; it has to be unpatched at both times.
    decisions: the Python branches that it takes at the example; None where they could not be watched. names: of the
    tensors of its output, where a cache is among them. changes: what a call keeps, where the next one answers
    otherwise.
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
        operations, self.decisions = self.eager.operations(inputs.values(), sizes=bool(dims))
        example = self._example()
        self.eager.limits = budget.limits(self.eager.example_bytes, self.eager.run.made)
        if example.stopped:
            raise InputError(f"the example itself takes more than max_memory={budget.max_memory:g}: {example.stopped}")
        if example.outputs is None:
            raise InputError(f"the model itself refuses the example: {example.error}{remedy(example.error or '')}")
        self.names = self.eager.names
        self.changes = changes_of_a_call(self.eager, inputs.values(), example)
        given = [self._given(one, f"data[{i}]") for i, one in enumerate(data)]
        self.oracle = Oracle(self.eager, inputs, dims, budget, operations)
        if self.decisions is not None and self.decisions.converts:
            self.decisions.asks_finite |= self.oracle.mentioned.finite
        found = find_probes(self.oracle, self.oracle.start(example), self.decisions)
        asked = [self._asked(name, size) for name, listed in (sizes or {}).items() for size in listed]
        self.probes = [*found, *(probe for probe in asked if all(probe is not one for one in found)), *given]
        self.seconds = time.perf_counter() - start

    def _example(self) -> Answer:
        """The answer to the example. What the call changed stays, for the next one to be compared with it."""
        values = self.inputs.values()
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
        """What runs of the model took and may take, in bytes: of the example, the most, the limit, and the process."""
        process = peak_of_process()
        return {
            "example": float(self.eager.example_bytes),
            "peak": float(self.eager.peak),
            "limit": self.eager.limits[0],
            **({"process": float(process)} if process else {}),
        }

    def flatten(self, how: Flatten) -> None:
        """Compare outputs in another form from now on. The known answers are converted."""
        if how is self.eager.flatten:
            return
        self.eager.flatten = how
        for probe in {id(probe): probe for probe in (*self.probes, *self.oracle.accepted())}.values():
            probe.expected = self.eager.flat(probe.raw)

    def also_at(self, sizes: Iterable[Mapping[str, int]]) -> None:
        """Add probes at these sizes, if eager accepts them. Dimensions not named are as in the example."""
        found = [self.oracle.at(one, must=True, far=True) for one in sizes]
        self.probes = list({id(p): p for p in (*self.probes, *(p for p in found if p is not None))}.values())

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
