"""`Recording`: sends the torch calls of one export with branches to the forwards that run now, each with a tape.

A call that the innermost forward shares with its path before is not made again; `tape` says what a recorded call is.

Two questions are answered by running a forward again. How long is a list? `self.scales[int(k)]` becomes one path for
each entry, but the list itself is never seen: Python only asks the number for its index. So the forward runs with 0, 1,
2, ... until the list raises IndexError. These runs are thrown away:

    scales = [1.0, 2.0]     run 0: no error, run 1: no error, run 2: IndexError  -> the length is 2
    x * scales[int(k)]      then two paths: k == 0 (or -2), and the rest

And what of a condition on sizes whose other side cannot be exported with the example? It is a decision with two paths.
The side that the example does not take may fail with it, or a module has more paths than are allowed. Without branches
the exporter takes the example's answer, which is often right at every size: the other side is never reached, or does
the same. So the module runs again with these answers, and the file is compared with eager as ever:

    if x.shape[1] == self.table.shape[1]:       the example is shorter: `x + self.table` cannot run with it
        x = x + self.table

This is done only if the file is compared afterwards; otherwise the module is refused. If the file turns out wrong, the
export is refused with the error that led here.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Protocol, TypeVar, cast

import torch
from torch.overrides import TorchFunctionMode

from onnxpatch._torch import exporting
from onnxpatch._torch.cond import conclusions, implied
from onnxpatch._torch.function_modes import unseen
from onnxpatch._torch.relied_on import explain
from onnxpatch._torch.symbolic_sizes import traced_from_sizes
from onnxpatch.control_flow.optional_outputs import BranchReport, Refusals
from onnxpatch.control_flow.pytrees import Name, StackedRounds, joined_rounds, tensors
from onnxpatch.control_flow.symbolic_shadow import SymbolicShadow
from onnxpatch.control_flow.tape import CallRecorder, TorchCall, is_mutation, is_random
from onnxpatch.decisions.ask import Site, here
from onnxpatch.decisions.functions_run import raised_on_purpose
from onnxpatch.errors import BranchError
from onnxpatch.process import undone

ResultT = TypeVar("ResultT")
ArgsT = TypeVar("ArgsT")
KwargsT = TypeVar("KwargsT")


class _Recorded(Protocol):
    """What a recording asks of a forward that runs now."""

    @property
    def module(self) -> torch.nn.Module: ...

    recorder: CallRecorder
    chosen: dict[Name, int]
    facts: list[tuple[torch.SymBool, bool]]

    def replay(self, function: Callable[..., object], args: object, kwargs: object) -> TorchCall | None: ...

    def append(self, call: TorchCall) -> None: ...

    def in_call(self, function: object, args: ArgsT, kwargs: KwargsT) -> tuple[ArgsT, KwargsT]: ...


class Recording(Refusals):
    """The torch calls of one run of a root model under an exporter.

    max_paths: the most paths of one call of one module. shadow: symbolic sizes, under the trace exporter only. mode:
    what sends torch calls here.
    """

    explorers: Sequence[_Recorded]

    def __init__(self, path_of: Callable[[torch.nn.Module], str], max_paths: int, report: BranchReport) -> None:
        super().__init__(path_of)
        self.exporter, self.max_paths, self.report = exporting(), max_paths, report
        self.paused = False
        self.mode: TorchFunctionMode | None = None
        self.shadow: SymbolicShadow | None = None
        # What torch refers to without owning it, and objects whose ids are keys: an id must not be used twice.
        self.alive: list[object] = []
        self.random: set[int] = set()  # ids of tensors that depend on random numbers
        self.list_lengths, self.sizes = _ListLengths(self), _ExampleFallback(self)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This is the recording of the current thread inside the block."""
        before = _thread.recordings
        with undone(lambda: setattr(_thread, "recordings", before)):
            _thread.recordings = (*before, self)
            yield

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Calls inside the block go straight to torch: neither recorded nor answered."""
        before = self.paused
        with undone(lambda: setattr(self, "paused", before)):
            self.paused = True
            yield

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Torch calls inside the block are the path's, also where torch has its modes off: while one of them runs."""
        with nullcontext() if self.mode is None else self.mode:
            yield

    def execute(
        self, function: Callable[..., ResultT], args: tuple[object, ...], kwargs: dict[str, object] | None = None
    ) -> ResultT:
        """Call a torch function, or take its result from the previous path; record the call in every explorer."""
        options: dict[str, object] = {} if kwargs is None else kwargs
        # With the results of the loops that ended before it.
        for explorer in reversed(self.explorers):
            args, options = explorer.in_call(function, args, options)
        if args and isinstance(args[0], StackedRounds):
            parts, join = args[0], cast("Callable[..., ResultT]", joined_rounds)
            return self.execute(join, (function, parts.before, parts.rounds, parts.after, *args[1:]), options)
        # The innermost explorer that made this call on its previous path answers it. The ones around it recorded the
        # call when it ran; the explorer itself and those further in are on new paths, and append it now.
        call, start = None, len(self.explorers)
        while call is None and start:
            start -= 1
            call = self.explorers[start].replay(function, args, options)
        if call is None:
            call, start = self._call(function, args, options), 0
        for explorer in self.explorers[start:]:
            explorer.append(call)
        # A list is copied: what the model appends to it must not reach the recorded call.
        return cast(ResultT, list(call.result) if type(call.result) is list else call.result)

    def _call(self, function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> TorchCall:
        with self.pause():
            # Paused: the call may be a loop, whose body runs modules of the user's and compares sizes.
            result = function(*args, **kwargs)
        call = TorchCall(function, args, kwargs, result, is_mutation(function, kwargs))
        self.alive.append(call)
        if is_random(function, args, kwargs) or any(id(t) in self.random for t in tensors((args, kwargs))):
            # An update in place with random numbers makes its target random too.
            self.random.update(id(t) for t in tensors((result, args[:1]) if call.mutates else result))
        if self.shadow is not None:
            self.shadow.follow(call)
        return call


# Another thread may export another model, or run this one in eager, at the same time.
class _Thread(threading.local):
    def __init__(self) -> None:
        self.recordings: tuple[Recording, ...] = ()


_thread = _Thread()


def latest() -> Recording | None:
    """The innermost recording of this thread, paused or not; None where none runs."""
    return _thread.recordings[-1] if _thread.recordings else None


def running() -> Recording | None:
    """The innermost recording of this thread; None where none runs or it is paused."""
    found = latest()
    return None if found is None or found.paused else found


_Place = tuple[int, Site]  # (id of the module, the line that indexes)


class _ListLengths:
    """The lengths of the lists that one export indexes with numbers from data."""

    def __init__(self, capture: Recording) -> None:
        self._capture = capture
        self._lengths: dict[_Place, int] = {}
        self._next_index: dict[_Place, int] = {}
        self._probe: tuple[_Place, int] | None = None

    @property
    def probing(self) -> bool:
        """Whether the forward runs only to find a length."""
        return self._probe is not None

    def choose(self, key: Name, is_any: Callable[[list[int]], bool], length: int | None) -> int:
        """The index that a number from data has on this path.

        key: the same for equal numbers, so that one number is decided once on a path. is_any: asks for the decision
        whether the number is one of several. length: of the list; None where it must be found.
        """
        explorer = self._capture.explorers[-1]
        if key in explorer.chosen:
            return explorer.chosen[key]
        # The list itself is never seen, so that the module and the line stand for it.
        place = id(explorer.module), here()
        length = self._lengths.get(place) if length is None else length
        if length is None:
            self._probe = place, self._next_index.get(place, 0)
            return self._probe[1]
        explorer.chosen[key] = _entry(length, is_any)
        return explorer.chosen[key]

    def settle_probe(self, error: Exception | None) -> bool:
        """After a run of the forward: whether it was a probe, so that the forward must run again."""
        if self._probe is None:
            return False
        (place, index), self._probe = self._probe, None
        if isinstance(error, IndexError):
            self._lengths[place] = index
        # Every entry becomes a path of its own.
        elif index >= self._capture.max_paths:
            raise self._capture.refusal(
                place[1],
                f"a list indexed with a number from data has more than {self._capture.max_paths} entries",
                remedy="keep its entries in one tensor and index that, or raise max_paths=",
            )
        else:
            self._next_index[place] = index + 1
        return True


def _entry(length: int, is_any: Callable[[list[int]], bool]) -> int:
    """The index that a number has on this path, in a list of `length` entries: a chain of decisions.

    Python reaches entry `i` by `i` and, counted from the end, by `i - length`. The last entry needs no decision.
    """
    for index in range(length - 1):
        if is_any([index, index - length]):
            return index
    # Of an empty list the entry 0 is asked for, so that Python raises its own IndexError.
    return max(0, length - 1)


def _nothing() -> None:
    """Forgets nothing: under trace, torch concludes nothing about sizes."""


class _ExampleFallback:
    """The modules of one capture whose conditions on sizes are answered as in the example."""

    def __init__(self, capture: Recording) -> None:
        self._capture = capture
        # By id of each module that has such a condition: a function that makes torch forget what it concluded since.
        self._asked: dict[int, Callable[[], None]] = {}
        self._settled: set[int] = set()

    def answer(self, condition: torch.Tensor | torch.SymBool) -> bool | None:
        """The example's answer in a settled module, or what follows from others; None where it is a decision."""
        module = id(self._capture.explorers[-1].module)
        if module not in self._settled:
            if module not in self._asked:
                self._asked[module] = _nothing if isinstance(condition, torch.Tensor) else conclusions(condition)
            written = self.written(condition)
            facts = [fact for explorer in self._capture.explorers for fact in explorer.facts]
            return None if written is None else implied(written, facts)
        if isinstance(condition, torch.Tensor):
            with unseen():
                return bool(condition)
        # torch's own, which answers at the example's size and adds a guard.
        return bool(inspect.unwrap(torch.SymBool.__bool__)(condition))

    def written(self, condition: torch.Tensor | torch.SymBool) -> torch.SymBool | None:
        """A condition as an expression of sizes; None for one on data."""
        shadow = self._capture.shadow
        known = shadow.get(condition) if shadow is not None and isinstance(condition, torch.Tensor) else condition
        return known if isinstance(known, torch.SymBool) else None

    def on_sizes(self, predicate: torch.Tensor) -> bool:
        """Whether a predicate was computed from sizes alone, under trace, where it is a tensor like any other."""
        shadow = self._capture.shadow
        if shadow is None:
            return False
        return shadow.is_condition(predicate) or (shadow.get(predicate) is None and traced_from_sizes(predicate))

    def forget(self, module: torch.nn.Module) -> None:
        """Make torch forget what it concluded on one path: what a convolution needs of its input, say."""
        self._asked.get(id(module), _nothing)()

    def settle(self, module: torch.nn.Module, error: Exception) -> bool:
        """Answer a module's conditions from now on, because of an error; False where that would change nothing."""
        report = self._capture.report
        forget = self._asked.pop(id(module), None)
        if not report.compared or forget is None or raised_on_purpose(error):
            return False
        forget()
        self._settled.add(id(module))
        path = self._capture.path_of(module) or "(root)"
        # The traceback, which tells whether a private API is missing, is not kept: it would keep the graph alive.
        said = explain(error) or f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        text = f"{path} ({type(module).__name__}): {said}"
        report.settled.append(error if isinstance(error, BranchError) else BranchError(text))
        return True
