"""`Recording`: sends the torch calls of one export with branches to the forwards that run now, each with a tape.

A call that the innermost forward shares with its path before is not made again; `tape` says what a recorded call is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Protocol, TypeVar, cast

import torch
from torch.overrides import TorchFunctionMode

from onnxpatch._torch import exporting
from onnxpatch.control_flow.branch_report import BranchReport, Refusals, Running
from onnxpatch.control_flow.pytrees import Name, StackedRounds, joined, tensors
from onnxpatch.control_flow.symbolic_shadow import SymbolicShadow
from onnxpatch.control_flow.tape import CallRecorder, TorchCall, is_mutation, is_random
from onnxpatch.process import undone

ResultT = TypeVar("ResultT")
ArgsT = TypeVar("ArgsT")
KwargsT = TypeVar("KwargsT")


class _Recorded(Running, Protocol):
    """What a recording asks of a forward that runs now."""

    recorder: CallRecorder
    chosen: dict[Name, int]

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
            with self.pause():
                join: Callable[..., object] = joined
                return cast(ResultT, join(function, *args, **options))
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
