"""A model with its example call, and what eager says to it: what every comparison starts from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from onnxpatch.errors import InputError
from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.verification.branch_recorder import Decisions
from onnxpatch.verification.eager import Answer, Eager, Flatten
from onnxpatch.verification.probe import Limits, Probe
from onnxpatch.verification.probe_search import ProbeSearch

_QUICK = 0.02  # seconds: a model that answers faster than this may be asked at much larger sizes
_SLOW = 0.2  # seconds: a model that takes longer is not asked anything twice


@dataclass
class Subject:
    """A model with its example call, the sizes that may change, and what eager has answered so far."""

    model: Any
    inputs: Inputs
    dims: list[DynamicDim]
    eager: Eager
    example: Answer
    watched: Decisions | None
    search: ProbeSearch
    given: list[Probe]
    probes: list[Probe]

    def find(self, seconds: float = math.inf) -> None:
        """Search for probes; no longer than `seconds` after the least of them are found."""
        limits = self.search.limits
        limits.seconds = self.eager.seconds + min(max(limits.seconds, 4 * self.example.seconds), seconds)
        self.probes = self.search.find(self.example, self.watched) + self.given

    def flatten(self, how: Flatten) -> None:
        """From now on outputs are compared in another form: so are the answers that are known already."""
        self.eager.flatten = how
        self.example = replace(self.example, outputs=self.eager.flat(self.example.raw))
        for probe in (*self.probes, *self.given):
            probe.expected = self.eager.flat(probe.raw)


def subject(
    model: Any,
    inputs: Inputs,
    dims: list[DynamicDim],
    *,
    limits: Limits,
    flatten: Flatten | None = None,
    data: Sequence[Any] = (),
    later: bool = False,
) -> Subject:
    """Ask the unpatched model at the example and find the probes (later: by `find()`, until when `probes` is no
    more than the example and other data). Raises InputError where eager refuses the example."""
    eager = Eager(model, inputs, flatten)
    watched = eager.decisions(inputs.values(), sizes=bool(dims))
    if isinstance(model, torch.jit.ScriptModule):
        eager.ask(inputs.values())
    if eager.seconds < _SLOW:  # the first call of a model warms caches: it is no measure of time
        eager.seconds = 0.0
    example = eager.ask(inputs.values())
    if example.outputs is None:
        raise InputError(f"the model itself refuses the example: {example.error}")
    limits.growth = 6.0 if example.seconds < _QUICK else 2.5
    search = ProbeSearch(eager, inputs, dims, limits)
    given = [_given(search, inputs, eager, one, i) for i, one in enumerate(data)]
    found = Subject(model, inputs, dims, eager, example, watched, search, given, [search.asking.start(example)])
    if not later:
        found.find()
    elif example.seconds < _QUICK:
        found.probes += filter(None, [search.asking.other_data()])
    return found


def _given(search: ProbeSearch, inputs: Inputs, eager: Eager, one: Any, index: int) -> Probe:
    """A probe that the caller hands in: (args, kwargs), or args alone."""
    pair = isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], tuple) and isinstance(one[1], dict)
    args, kwargs = one if pair else (one, {})
    other = Inputs(eager.model, args, kwargs)
    if len(other.leaves) != len(inputs.leaves):
        raise InputError(f"data[{index}] has {len(other.leaves)} values, the example {len(inputs.leaves)}")
    values = other.values()
    answer = eager.ask(values)
    if answer.outputs is None:
        raise InputError(f"data[{index}]: the model itself refuses it: {answer.error}")
    sizes = {dim.name: int(values[dim.places[0][0]].shape[dim.places[0][1]]) for dim in search.dims}
    return Probe(f"data[{index}]", "given", sizes, values, answer.outputs, answer.raw)
