"""`Eager`: runs a model on given inputs, always from the same state and random seed."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch

from onnxpatch._torch import pytree
from onnxpatch._torch.dispatch_modes import CountedRun, run_in_eager
from onnxpatch._torch.function_modes import unseen
from onnxpatch.decisions.sides_taken import SidesTaken, Taken
from onnxpatch.decisions.watched_run import watched_run
from onnxpatch.errors import InputError
from onnxpatch.inputs.held_objects import copied_value, each_once
from onnxpatch.inputs.leaves import Inputs, caches_loaded
from onnxpatch.inputs.opened_objects import opened, output_names
from onnxpatch.limits import addresses_limited, out_of_memory
from onnxpatch.messages.user_code import said_by
from onnxpatch.patching.forward_state import Snapshot, process_state_kept
from onnxpatch.process import Shared
from onnxpatch.verification.branch_recorder import Decisions, address, addresses
from onnxpatch.verification.comparison import all_alike, is_blank
from onnxpatch.verification.probe import Probe

_GROWTH = 3  # the power of its sizes by which the memory of a forward may grow
Flatten = Callable[[Any], Sequence[torch.Tensor | None]]


@dataclass(frozen=True)
class Answer:
    """The result of eager for one input: its output tensors, or the error that it raised.

    stopped: why the run was ended: it would have taken too much memory. Then nothing is known of what eager answers.
    taken: the sides of its own conditions that the model took. empty: more operators gave a tensor of no elements than
    for the example.
    """

    outputs: tuple[torch.Tensor | None, ...] | None
    error: str | None
    finite: bool = True
    raw: Any = None
    stopped: str = ""
    taken: Taken | None = None
    empty: bool = False

    @property
    def accepted(self) -> bool:
        return self.outputs is not None

    def probe(self, label: str, kind: str, sizes: dict[str, int], values: list[Any], exact: bool = False) -> Probe:
        """The probe of these inputs, of which this is the answer."""
        return Probe(label, kind, sizes, values, self.outputs or (), self.raw, exact, self.taken, self.empty)


def tells(probe: Probe) -> bool:
    """Whether a graph that takes the other side of a condition has other outputs: where all are 0 it may not.

    A None of eager's is 0 too, but its flag tells; one that is None for every input has no outputs in its place.
    """
    if probe.kind == "example" or not is_blank(probe.expected):
        return True
    none = any(leaf is None for leaf in pytree.tree_leaves(_opened(probe.raw)))
    return none and len(flatten_output(probe.raw)) < len(probe.expected)


def _opened(output: object) -> Any:
    return opened(output) if caches_loaded() else output


def flatten_output(output: object) -> list[torch.Tensor]:
    """The tensors of an output in the order of the graph's outputs: None and Python values are no outputs."""
    found: list[torch.Tensor] = []
    for leaf in pytree.tree_leaves(_opened(output)):
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif is_dataclass(leaf) and not isinstance(leaf, type):
            found += flatten_output([getattr(leaf, f.name) for f in fields(leaf)])
    return found


def _kept(output: object) -> Any:
    """A copy of an output, since its tensors may be views of inputs or buffers."""
    return pytree.tree_map(_kept_leaf, _opened(output))


def _kept_leaf(leaf: object) -> object:
    if isinstance(leaf, torch.Tensor):
        return leaf.detach().clone()
    # pytree takes a dataclass that nobody registered for one leaf, and would not copy the tensors in it.
    if is_dataclass(leaf) and not isinstance(leaf, type):
        return replace(leaf, **{f.name: _kept(getattr(leaf, f.name)) for f in fields(leaf) if f.init})
    return leaf


def _random_state() -> bytes:
    return torch.random.get_rng_state().numpy().tobytes()


def _finite(outputs: Sequence[torch.Tensor | None]) -> bool:
    return all(bool(torch.isfinite(o).all()) for o in outputs if o is not None and o.is_floating_point())


class Eager:
    """A model that is run as often as needed, each time from the same state and random seed.

    It is run as it is: the caller must make sure that it is not patched.
    """

    def __init__(
        self, model: torch.nn.Module, inputs: Inputs, flatten: Flatten | None = None, state: Snapshot | None = None
    ) -> None:
        """state: the model's, if the caller has a snapshot already."""
        self.model, self.inputs = model, inputs
        self.flatten = flatten or flatten_output
        self.draws = False  # whether a forward drew random numbers
        self.names: list[str] | None = None  # of the tensors in the last output, where a cache is among them
        self.elements = 0  # of all inputs so far; the cost of the runs is estimated from them
        self.counted = True  # whether runs may be counted; some models run in no dispatch mode of somebody else
        self.without_elements = 0  # results of operators for the example that have none
        self.by_data = True  # whether data may decide how much memory a run takes
        self.coarse: torch.dtype | None = None  # float16 or bfloat16, where operators gave results in it
        self.limits: tuple[float, float] = (math.inf, math.inf)  # of one run: bytes, calls of operators
        self.run = CountedRun()  # the last one
        self.peak = self.example_bytes = 0  # the most bytes that a run took, and the example
        self.watched: Any = None  # the example's output in the run of `operations`
        self._state = state or Snapshot(model, *inputs.objects())
        own = addresses(model)
        self.sides = SidesTaken(lambda value: isinstance(value, torch.Tensor) and address(value) in own, unseen)
        self._taken: Taken | None = None  # by the last run
        self._given: set[int] = set()  # the addresses of its inputs

    def ask(
        self,
        values: Sequence[object],
        seed: int = 0,
        gradients: bool = False,
        grown: float = 1.0,
        restored: bool = True,
        known: Decisions | None = None,
    ) -> Answer:
        """Run the model. values: one for each leaf of the inputs; they are copied, since a forward may write into them.

        seed: of torch's random numbers. gradients: record them, which keeps torch's modules off their fast paths for
        inference. grown: how many times larger than the example's the sizes are, all dimensions together. restored:
        put the model's state back, also where it answers. known: what a run of the same values was seen to do: it is
        within the limits.
        """  # fmt: skip
        self._count(values)
        recorded = not seed and not gradients and known is None
        counted = known is None and self._may_be_large(grown)
        raw, error = self._run(values, seed, gradients, counted, recorded, restored)
        outputs = None if error is not None else self.flat(raw)
        taken = self._taken if known is None else known.taken
        empty = (self.run if known is None else known).without_elements > self.without_elements
        return Answer(outputs, error, _finite(outputs or ()), raw, self.run.stopped, taken, empty)

    def answered_alike(self, first: Answer) -> bool:
        """Whether the first answer is that of `operations` to the same values, and the call changed nothing."""
        watched, self.watched = self.watched, None
        return watched is not None and not self.changed() and all_alike(first.outputs, self.flat(watched))

    def changed(self) -> list[str]:
        """The names of what the last call changed, where it was not put back."""
        return self._state.changed()

    def again(self, values: Sequence[object]) -> Answer:
        """The answer in the state that the last call left, which is put back then."""
        self._count(values)
        raw, error = self._run(values)
        return Answer(None if error is not None else self.flat(raw), error)

    def flat(self, raw: object) -> tuple[torch.Tensor | None, ...]:
        """An output in the form of the graph's outputs."""
        flat: Any = self.flatten(raw)
        found = type(flat).__name__
        # Not every iterable: a tensor has rows, which would pass for as many outputs.
        if isinstance(flat, list | tuple | Iterator):
            flat = tuple(flat)
            others = {type(one).__name__ for one in flat if one is not None and not isinstance(one, torch.Tensor)}
            if not others:
                return flat
            found = f"{found} with {', '.join(sorted(others))}"
        raise InputError(f"flatten returned {found}: give a list of tensors, in the order of the graph's outputs")

    def decisions(
        self, values: Sequence[object], sizes: bool = False, numbers: bool = True, answered: bool = False
    ) -> Decisions | None:
        """The branches on data that the forward takes; None if eager raises, or if a loop does not end on this data.

        sizes: also branches on sizes. numbers: also what numbers from tensors are compared with. answered: `ask` was
        answered to the same values, so that neither the work nor the sides are recorded again. This is a run of its
        own, since function modes change the kernels that torch picks.
        """
        watch = Decisions(sizes, numbers, lambda tensor: address(tensor) in self._given)
        # Function modes do not see inside a ScriptModule, which freezes no branch either.
        if isinstance(self.model, torch.jit.ScriptModule):
            return watch
        self._count(values)
        with watch:
            raw, error = self._run(values, counted=not answered, recorded=not answered)
        watch.taken, watch.without_elements = self._taken, self.run.without_elements
        if error is not None and not self.run.stopped and (sizes or watch.gave_numbers):
            # First without watched sizes, then without watched numbers too.
            return self.decisions(values, numbers=sizes, answered=answered)  # some code accepts no subclass of int
        self.draws |= watch.draws
        if not answered:
            self.watched = raw
        return watch if error is None else None

    def operations(self, values: Sequence[Any], sizes: bool) -> tuple[float, Decisions | None]:
        """(the arithmetic of one forward, its `decisions`), from one run if possible."""
        # The first run of the forward: large tensors are copied just before it writes into them.
        with self._state.watched():
            watch = self.decisions(values, sizes)
            # `decisions` does not run a ScriptModule, so nothing has been counted yet.
            if isinstance(self.model, torch.jit.ScriptModule):
                self._run(values)
        count = self.run
        self.by_data = count.by_data or watch is None or watch.decides
        self.without_elements = count.without_elements
        if watch is not None or count.stopped:
            return count.operations, watch
        # The forward broke off, and so did the count: each parameter takes a multiplication and an addition at least.
        least = 2.0 * sum(parameter.numel() for parameter in self.model.parameters())
        self.counted = False
        watch = self.decisions(values, sizes)
        self.counted = watch is None
        return max(count.operations, least), watch

    @contextmanager
    def _recorded(self, recorded: bool) -> Iterator[None]:
        self._taken = None
        # A ScriptModule is no Python.
        if not recorded or isinstance(self.model, torch.jit.ScriptModule):
            yield
            return
        with watched_run(self.sides) as self._taken:
            yield

    def _count(self, values: Sequence[object]) -> None:
        self.elements += sum(v.numel() for v in values if isinstance(v, torch.Tensor))

    def _may_be_large(self, grown: float) -> bool:
        """Whether a run may exceed the limits. Counting takes as long as the operators of a small model do."""
        return self.by_data or not self.example_bytes or self.example_bytes * grown**_GROWTH > self.limits[0]

    def _run(
        self,
        values: Sequence[Any],
        seed: int = 0,
        gradients: bool = False,
        counted: bool = True,
        recorded: bool = False,
        restored: bool = True,
    ) -> tuple[Any, str | None]:
        copies = each_once(copied_value, values)
        args, kwargs = self.inputs.rebuild(copies)
        self._given = {address(one) for one in copies if isinstance(one, torch.Tensor)} - {0}
        # What the example computes decides what others may cost; before it is known there is no limit.
        self.run = run = CountedRun(*self.limits, arithmetic=math.isinf(self.limits[1]))
        raw, error = None, None
        try:
            with torch.set_grad_enabled(gradients), process_state_kept(seed=seed), addresses_limited(self.limits[0]):
                before = _random_state()
                try:
                    with run if self.counted and counted else nullcontext(), self._recorded(recorded), _uncompiled():
                        # The call, not `forward`: hooks are part of what the model computes.
                        output = self.model(*args, **kwargs)
                        self.names = output_names(output) if caches_loaded() else None
                        raw = _kept(output)
                finally:
                    # Also when the forward raises: it may draw first.
                    self.draws |= _random_state() != before
        except Exception as raised:
            error = f"{type(raised).__name__}: {' '.join(said_by(raised).split())[:300]}"
            if out_of_memory(raised):
                run.stopped = run.stopped or f"the system gave no more memory ({error[:100]})"
        finally:
            if restored or raw is None:
                self._state.restore()
            self.peak, self.coarse = max(self.peak, run.peak), run.coarse or self.coarse
        # Also where the model caught what ended it.
        return (None, run.stopped) if run.stopped else (raw, error)


_EAGER = Shared(run_in_eager)  # an option of the process


def _uncompiled() -> AbstractContextManager[None]:
    """What torch.compile made runs as it was written: the reference is eager, and no size is compiled for itself."""
    # Before torch._dynamo is imported, which takes two seconds, nothing can have been compiled.
    return _EAGER.held() if "torch._dynamo" in sys.modules else nullcontext()
